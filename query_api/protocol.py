"""What the HTTP server leaves to us: streams to HTTP/1.0 clients, and errors before there is a request."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from query_api.errors import ErrorBody, ErrorEnvelope


class Protocol(HttpToolsProtocol):
    """One connection. An HTTP/1.0 client knows no chunks: a stream to it ends with the connection (RFC 9112, 6.3);
    the server itself would send chunks to any."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["http_version"] != "1.1":
            app = _unframed(app, cycle)
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """In the one error shape as well."""
        error = ErrorBody("invalid_request_error", "this is not an HTTP request")
        body = msgspec.json.encode(ErrorEnvelope(error))
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(b"".join((STATUS_LINE[400], head, body)))
        self.transport.close()


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
