"""What every HTTP request passes through: the body limit, the last word on errors, the count by route."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from query_api.errors import ApiError, error_response, unexpected_error
from query_api.metrics import ApiMetrics

log = logging.getLogger(__name__)

UNMATCHED = "unmatched"
"""Route label of a path that no route has: the path itself would make one series per typing error."""


class Edge:
    """Pure ASGI: the framework's own middleware base class would cost as much as a fast answer does."""

    def __init__(self, app: ASGIApp, metrics: ApiMetrics, max_body_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if _announced_length(scope) > self._max_body_bytes:
                await error_response(self._too_large())(scope, receive, send_counted)
            else:
                await self._app(scope, self._limited(receive), send_counted)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if status:  # the reply has begun: only a cut connection can say that it is not whole
                raise
            # Replying here rather than leaving it to the server keeps the caller's connection.
            await error_response(unexpected_error())(scope, receive, send_counted)
        finally:
            route = getattr(scope.get("route"), "path", UNMATCHED)
            self._metrics.request(scope["method"], route, status, time.perf_counter() - started)

    def _limited(self, receive: Receive) -> Receive:
        """For bodies sent in chunks, which announce no length."""
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> ApiError:
        return ApiError(413, "payload_too_large", f"the body is larger than {self._max_body_bytes} bytes")


def _announced_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
