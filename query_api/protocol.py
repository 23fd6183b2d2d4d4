"""What the HTTP server leaves to us: streams to HTTP/1.0 clients, errors before there is a request, and the bounds
of a connection: how long a request's head may be, how long it may take to come, how many connections there are."""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from query_api.errors import ErrorBody, ErrorEnvelope
from stream_engine.config.api import ApiSettings

COUNT_REFUSED = "count_refused"
"""Key of the application's own count of refused connections in the state of its lifespan."""
_NO_REQUEST = (400, ErrorBody("invalid_request_error", "this is not an HTTP request"))


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of one process: ``head_bytes`` and ``seconds`` of one request, until its last byte has come."""

    connections: int
    head_bytes: int
    seconds: float

    @classmethod
    def of(cls, settings: ApiSettings) -> ConnectionLimits:
        return cls(settings.max_connections, settings.max_header_bytes, settings.request_timeout_s)


class Protocol(HttpToolsProtocol):
    """One connection. An HTTP/1.0 client knows no chunks: a stream to it ends with the connection (RFC 9112, 6.3);
    the server itself would send chunks to any, bound no head, and wait for a request for ever."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits = limits
        self._refusal = _NO_REQUEST
        self._head_open = False
        self._head_bytes = 0
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._limits.connections:
            self._count("too_many_connections")
            transport.abort()
            self.transport = transport
            return
        super().connection_made(transport)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        if isinstance(exc, TimeoutError):  # of the socket: see ``listen`` in server.py
            self._count("does_not_read")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._head_open:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                self._refuse_long_head()
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open, self._head_bytes = True, 0
        self._start_clock()

    def on_headers_complete(self) -> None:
        self._head_open = False
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.head_bytes:
            self._refuse_long_head()
            raise ValueError("the head is too long")  # the parser stops, and send_400_response says why
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_clock()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """In the one error shape as well."""
        status, error = self._refusal
        body = msgspec.json.encode(ErrorEnvelope(error))
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(b"".join((STATUS_LINE[status], head, body)))
        self.transport.close()

    def _refuse_long_head(self) -> None:
        self._count("header_too_large")
        message = f"the request line and headers are longer than {self._limits.head_bytes} bytes"
        self._refusal = (431, ErrorBody("request_header_fields_too_large", message))

    def _start_clock(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        self._count("too_slow")
        if not self._head_open:  # nothing has come, or a body that the application waits for
            self.transport.close()
            return
        message = f"the request was not complete within {self._limits.seconds:g} s"
        self._refusal = (408, ErrorBody("request_timeout", message))
        self.send_400_response("")

    def _count(self, reason: str) -> None:
        count = self.app_state.get(COUNT_REFUSED)
        if count is not None:
            count(reason)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["http_version"] != "1.1":
            app = _unframed(app, cycle)
        super()._start_asgi_task(cycle, app)


def _unframed(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        streamed = False

        async def send_unframed(message: Message) -> None:
            nonlocal streamed
            if message["type"] == "http.response.start":
                streamed = not any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
                cycle.chunked_encoding = False if streamed else None
            elif streamed:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_unframed)

    return served
