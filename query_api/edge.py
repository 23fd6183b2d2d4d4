"""What every HTTP request passes through: method, body limit, the last word on errors, the count by route."""

from __future__ import annotations

import logging
import re
import time
from urllib.parse import unquote

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from query_api.access.browsers import BrowserRules
from query_api.errors import ApiError, error_response, invalid, unexpected_error
from query_api.metrics import ApiMetrics
from query_api.resources import Resource, Resources

log = logging.getLogger(__name__)

PROBES = "/health/"
"""Whoever probes calls this machine by whatever name it has for it; what it learns is no secret."""
UNMATCHED = "unmatched"
"""Route label of a path that no route has: the path itself would make one series per typing error."""


class _HeadSent(Exception):
    """The head of a stream is out and was all that was asked for: nothing more is to be made."""


class Edge:
    """Pure ASGI: the framework's own middleware base class would cost as much as a fast answer does."""

    def __init__(
        self, app: ASGIApp, metrics: ApiMetrics, resources: Resources, browsers: BrowserRules, max_body_bytes: int
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._resources = resources
        self._browsers = browsers
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        is_head = scope["method"] == "HEAD"

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif is_head:
                await send({"type": "http.response.body"})
                if message.get("more_body"):
                    raise _HeadSent
                return
            await send(message)

        routed = _without_trailing_slashes(scope)
        resource = self._resources.of(_with_slashes_of_ids(routed["raw_path"]))
        try:
            if refused := self._refused(routed, resource):
                await refused(scope, receive, send_counted)
            else:
                if is_head:
                    routed = {**routed, "method": "GET"}
                await self._app(routed, self._limited(receive), send_counted)
        except (_HeadSent, ClientDisconnect):  # who has gone before its request was complete hears no reply
            pass
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if status:  # the reply has begun: only a cut connection can say that it is not whole
                raise
            # Replying here rather than leaving it to the server keeps the caller's connection.
            await error_response(unexpected_error())(scope, receive, send_counted)
        finally:
            route = UNMATCHED if resource is None else resource.path
            self._metrics.request(scope["method"], route, status, time.perf_counter() - started)

    def _refused(self, scope: Scope, resource: Resource | None) -> Response | None:
        """The reply to a request that no route has to see."""
        if "\ufffd" in scope["path"] and b"%EF%BF%BD" not in scope["raw_path"].upper():
            return error_response(invalid("the path is not percent-encoded UTF-8", param="path"))
        probed = resource is not None and resource.path.startswith(PROBES)
        if not probed and (refused := self._browsers.refusal(scope["method"], scope["headers"])):
            return error_response(refused)
        if resource is not None:
            if scope["method"] == "OPTIONS":
                return Response(status_code=204, headers={"allow": resource.allow})
            if scope["method"] not in resource.methods:
                message = f"{scope['method']} is not taken here; {resource.allow} are"
                reply = error_response(ApiError(405, "method_not_allowed", message))
                reply.headers["allow"] = resource.allow
                return reply
        if _announced_length(scope) > self._max_body_bytes:
            return error_response(self._too_large())
        return None

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


def _with_slashes_of_ids(raw_path: bytes) -> str:
    """The decoded path, in which a slash that came as ``%2F`` is none: an id may end as another path does."""
    return unquote(re.sub(rb"%2[Ff]", b"%00", raw_path).decode("latin-1"))


def _without_trailing_slashes(scope: Scope) -> Scope:
    """The path without the slashes at its end, which some clients add; an id's own comes as ``%2F``."""
    raw: bytes = scope["raw_path"]
    extra = len(raw) - len(raw.rstrip(b"/"))
    if not extra or len(raw) == 1:
        return scope
    return {**scope, "path": scope["path"][:-extra] or "/", "raw_path": raw[:-extra] or b"/"}
