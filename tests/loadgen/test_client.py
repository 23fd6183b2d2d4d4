"""The HTTP client against a server that is scripted down to its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from loadgen import client as module
from loadgen.client import HttpClient, Reply, precise_loop

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@dataclass
class Server:
    """``script`` gives the reply of each request in turn; None closes the connection instead."""

    script: list[bytes | None]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests.append(head + await reader.readexactly(2))
                reply = self.script.pop(0) if self.script else OK
                if reply is None:
                    break
                for part in (reply[:9], reply[9:]):
                    writer.write(part)
                    await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        writer.close()


def talk(server: Server, with_client: Callable[[HttpClient], Awaitable[None]]) -> None:
    async def main() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        client = HttpClient(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/base/")
        await with_client(client)
        client.close()
        listener.close()
        await asyncio.sleep(0.02)

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(main())


def test_requests_reuse_a_connection_and_replies_come_in_parts() -> None:
    server = Server([b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"])
    replies: list[Reply] = []

    async def ask(client: HttpClient) -> None:
        replies.extend([await client.post("/a%2Fb/query", b"{}"), await client.post("/c", b"[]")])

    talk(server, ask)
    assert [(reply.status, reply.body) for reply in replies] == [(404, b"abc"), (200, b"hi")]
    assert all(reply.sent <= reply.received for reply in replies)
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /base/a%2Fb/query HTTP/1.1\r\nHost: 127.0.0.1:")
    assert server.requests[0].endswith(b"Content-Length: 2\r\n\r\n{}")


def test_a_reply_is_timed_from_its_request_to_its_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock shows how far the server has come."""
    progress = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: progress[0]))
    replies: list[Reply] = []

    class Slow(Server):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            for number, part in enumerate((OK[:20], OK[20:-1], OK[-1:]), start=1):
                progress[0] = float(number)
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.02)  # so that the parts come apart
            writer.close()

    async def ask(client: HttpClient) -> None:
        await client.warm(1)
        replies.append(await client.post("/", b"{}"))

    talk(Slow([]), ask)
    (reply,) = replies
    assert (reply.body, reply.sent, reply.received) == (b"hi", 0.0, 3.0)


def test_requests_at_a_time_have_connections_of_their_own() -> None:
    server = Server([])

    async def ask(client: HttpClient) -> None:
        await asyncio.gather(*(client.post("/", b"{}") for _ in range(5)))
        await client.post("/", b"{}")

    talk(server, ask)
    assert (server.connections, len(server.requests)) == (5, 6)


def test_an_idle_connection_that_the_server_closed_is_replaced() -> None:
    server = Server([OK, None, OK])

    async def ask(client: HttpClient) -> None:
        await client.post("/", b"{}")
        assert (await client.post("/", b"{}")).status == 200

    talk(server, ask)
    assert server.connections == 2


def test_a_reply_that_ends_its_connection_is_not_reused() -> None:
    server = Server([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"])

    async def ask(client: HttpClient) -> None:
        assert (await client.post("/", b"{}")).body == b""
        assert (await client.post("/", b"{}")).body == b"hi"

    talk(server, ask)
    assert server.connections == 2


@pytest.mark.parametrize("reply", [None, b"SSH-2.0-OpenSSH_9.6\r\n\r\n"])
def test_no_reply_is_an_error(reply: bytes | None) -> None:
    async def ask(client: HttpClient) -> None:
        with pytest.raises(OSError, match=r"HTTP reply|closed"):
            await client.post("/", b"{}")

    talk(Server([reply, reply, reply]), ask)
