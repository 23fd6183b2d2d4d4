"""An HTTP client that costs little beside a fast answer (a general one takes several times as long as the
service), and that takes the time of a reply when its last byte is here."""

from __future__ import annotations

import asyncio
import selectors
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

MAX_CONNECTIONS = 256
"""A request beyond them waits for a connection; its latency counts from when it was meant to be sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """``sent`` and ``received`` are of the monotonic clock, in seconds."""

    status: int
    body: bytes
    sent: float
    received: float


class Disconnected(ConnectionError):
    """The server closed the connection before it had replied."""


class _Connection(asyncio.Protocol):
    """One request at a time. httptools calls the ``on_`` methods."""

    def __init__(self) -> None:
        self.open = False
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._reply: asyncio.Future[Reply] | None = None
        self._sent = 0.0

    def request(self, content: bytes) -> asyncio.Future[Reply]:
        assert self._transport is not None
        self._body = []
        self._reply = asyncio.get_running_loop().create_future()
        self._sent = time.monotonic()
        self._transport.write(content)
        return self._reply

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.open = transport, True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"not an HTTP reply: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._fail(Disconnected(str(exc) if exc else "the server closed the connection"))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        received = time.monotonic()
        self.open = self.open and self._parser.should_keep_alive()
        if self._reply is not None and not self._reply.done():
            status = self._parser.get_status_code()
            self._reply.set_result(Reply(status, b"".join(self._body), self._sent, received))

    def _fail(self, error: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)


class HttpClient:
    """Keep-alive connections to one service, as many as there are requests at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._authority = parts.netloc.rpartition("@")[2]
        self._idle: list[_Connection] = []
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)

    async def post(self, path: str, body: bytes) -> Reply:
        """Send once; again on a new connection where the server had closed an idle one (questions may be asked
        twice). Raises OSError where there is no reply."""
        head = (
            f"POST {self._prefix}{path} HTTP/1.1\r\nHost: {self._authority}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        content = head.encode("ascii") + body
        async with self._slots:
            while self._idle:
                connection = self._idle.pop()
                if connection.open:
                    try:
                        return await self._exchange(connection, content)
                    except Disconnected:
                        continue
            return await self._exchange(await self._connect(), content)

    async def warm(self, connections: int) -> None:
        """Open connections ahead of the first requests."""
        self._idle += [await self._connect() for _ in range(connections - len(self._idle))]

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls or None)
        return connection

    async def _exchange(self, connection: _Connection, content: bytes) -> Reply:
        try:
            reply = await connection.request(content)
        except BaseException:
            connection.close()
            raise
        if connection.open:
            self._idle.append(connection)
        else:
            connection.close()
        return reply


def precise_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are right to a tenth of a millisecond: the usual selector, epoll, waits in whole
    milliseconds, which is longer than a fast answer takes."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())
