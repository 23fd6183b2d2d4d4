"""Real sockets between engine, consumer and API."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from stream_engine.config.transport import TransportSettings
from stream_engine.messages import (
    Check,
    Committed,
    ConsumerHello,
    Done,
    EventEnvelope,
    Query,
    StatusRequest,
    ToEngine,
    Welcome,
)
from stream_engine.messages.transport import EngineClient, EngineLink, EngineServer, EngineUnavailable, Peer

PATIENCE_MS = 10_000


@pytest.fixture
def settings(tmp_path: Path) -> TransportSettings:
    folder = tmp_path / "run"
    return TransportSettings(f"ipc://{folder}/engine.sock", f"ipc://{folder}/events.sock")


@pytest.fixture
def server(settings: TransportSettings) -> Iterator[EngineServer]:
    made = EngineServer(settings)
    yield made
    made.close()


def gather(server: EngineServer, count: int) -> list[tuple[Peer, ToEngine]]:
    """Messages until there are ``count``; a round of the full patience without any frame is a failure."""
    got: list[tuple[Peer, ToEngine]] = []
    while len(got) < count:
        malformed = server.malformed
        received = server.receive(PATIENCE_MS)
        assert received or server.malformed > malformed, f"{len(got)} of {count} messages came"
        got += received
    return got


@pytest.fixture
def stranger(server: EngineServer, settings: TransportSettings) -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(settings.engine)
    yield socket
    socket.close()
    context.term()


def test_the_socket_folder_is_made_for_this_user_only(server: EngineServer, settings: TransportSettings) -> None:
    folder = Path(settings.engine.removeprefix("ipc://")).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_consumer_and_the_engine_talk(server: EngineServer, settings: TransportSettings) -> None:
    link = EngineLink(settings)
    link.send(ConsumerHello(("market.bars",)))
    ((peer, message),) = gather(server, 1)
    assert message == ConsumerHello(("market.bars",))
    server.send(peer.unsolicited(), Welcome("boot", 7))
    assert link.drain(PATIENCE_MS) == [Welcome("boot", 7)]
    assert link.drain() == []
    link.close()


def deep(levels: int) -> bytes:
    """A query with a field that we do not know, nested so deep that skipping it fails."""
    body = bytearray(msgspec.msgpack.encode({"type": "Query", "session": "A", "question": "?"}))
    body[0] += 1  # one more field
    return bytes(body) + msgspec.msgpack.encode("new") + b"\x91" * levels + b"\x01"


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"one"],
        [b"", b""],
        [b"", b"\xc1"],
        [b"", b"not a message"],
        [b"", msgspec.msgpack.encode({"type": "NoSuch"})],
        [b"", msgspec.msgpack.encode({"type": "Query", "session": 3, "question": "?"})],
        [b"", msgspec.msgpack.encode(Query("A", "xx")).replace(b"xx", b"\xff\xfe")],
        [b"", deep(100_000)],
        [b"", b"", b"", b""],
    ],
)
def test_malformed_frames_are_counted_and_the_next_message_comes(
    frames: list[bytes], server: EngineServer, stranger: zmq.Socket[bytes]
) -> None:
    stranger.send_multipart(frames)
    stranger.send_multipart([b"7", msgspec.msgpack.encode(StatusRequest())])
    ((peer, message),) = gather(server, 1)
    assert message == StatusRequest()
    assert peer.correlation == b"7"
    assert server.malformed == 1


def test_a_flood_of_rubbish_does_not_hold_the_engine(server: EngineServer, stranger: zmq.Socket[bytes]) -> None:
    for _ in range(50):
        stranger.send_multipart([b"rubbish"])
    stranger.send_multipart([b"7", msgspec.msgpack.encode(StatusRequest())])
    gather(server, 1)  # all has arrived, in order
    for _ in range(50):
        stranger.send_multipart([b"rubbish"])
    before = server.malformed
    assert server.receive(PATIENCE_MS, limit=10) == []
    assert server.malformed - before <= 10


def test_at_most_the_limit_is_received(server: EngineServer, stranger: zmq.Socket[bytes]) -> None:
    for number in range(10):
        stranger.send_multipart([b"%d" % number, msgspec.msgpack.encode(StatusRequest())])
    got = []
    while len(got) < 10:
        received = server.receive(PATIENCE_MS, limit=3)
        assert 0 < len(received) <= 3
        got += received
    assert [peer.correlation for peer, _ in got] == [b"%d" % number for number in range(10)]


def test_a_reply_to_a_peer_that_left_is_dropped(server: EngineServer, settings: TransportSettings) -> None:
    link = EngineLink(settings)
    link.send(ConsumerHello(()))
    ((peer, _),) = gather(server, 1)
    link.close()
    server.send(peer, Done())
    server.send(Peer(b"nobody", b"1"), Done())


def test_a_peer_that_never_reads_is_sent_so_much_and_no_more(
    settings: TransportSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_engine.messages.transport.MAX_UNREAD", 100)
    server, context = EngineServer(settings), zmq.Context()
    try:
        silent, other = context.socket(zmq.DEALER), context.socket(zmq.DEALER)
        silent.setsockopt(zmq.RCVHWM, 1)
        for socket in (silent, other):
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(settings.engine)
            socket.send_multipart([b"7", msgspec.msgpack.encode(StatusRequest())])
        peers = [peer for peer, _ in gather(server, 2)]
        for _ in range(3_000):  # some are held by the system's own buffers
            server.send(peers[0], Done("x" * 10_000))
        assert server.skipped.counts["peer_does_not_read"] > 1_000
        server.send(peers[1], Done("the other one is served"))
        assert other.poll(PATIENCE_MS)
        assert b"the other one is served" in other.recv_multipart()[-1]
    finally:
        context.destroy(linger=0)
        server.close()


def test_replies_find_their_requests_in_any_order(server: EngineServer, settings: TransportSettings) -> None:
    async def scenario() -> None:
        client = EngineClient(settings)
        with pytest.raises(EngineUnavailable, match="not started"):
            await client.request(StatusRequest(), 1)
        await client.start()
        asked = [asyncio.create_task(client.request(Query("A", str(n)), 30)) for n in range(5)]
        got = await asyncio.to_thread(gather, server, 5)
        stray = got[0][0]
        server.send(stray.unsolicited(), Done("stray"))
        server.send(Peer(stray.identity, b"no such"), Done("stray"))
        for peer, message in reversed(got):
            assert isinstance(message, Query)
            server.send(peer, Done(message.question))
            server.send(peer, Done("a second reply is ignored"))
        assert [reply for reply in await asyncio.gather(*asked)] == [Done(str(n)) for n in range(5)]
        await client.close()

    asyncio.run(scenario())


def test_what_is_posted_arrives_or_is_refused_at_once(settings: TransportSettings) -> None:
    """Nothing waits for an engine that is away, and only so much for one that does not read."""
    check = Check(
        session="A",
        question="?",
        question_class="trend",
        session_version=1,
        position=2,
        token=3,
        gap=4.0,
        token_hash=2**64 - 1,
    )

    async def scenario() -> None:
        client = EngineClient(settings)
        assert not client.post(check)
        await client.start()
        assert not client.post(check)
        server = EngineServer(settings)
        while not client.post(check):
            await asyncio.sleep(0.01)
        ((_, received),) = await asyncio.to_thread(gather, server, 1)
        assert received == check
        posted = 0
        while client.post(check):
            posted += 1
        assert 0 < posted < 100_000
        asked = asyncio.create_task(client.request(StatusRequest(), 30))  # a request has a pipe of its own
        while True:
            for peer, message in await asyncio.to_thread(server.receive, 1_000):
                if isinstance(message, StatusRequest):
                    server.send(peer, Done())
            if asked.done():
                break
            await asyncio.sleep(0)
        assert asked.result() == Done()
        await client.close()
        server.close()

    asyncio.run(scenario())


def test_an_engine_that_does_not_answer_is_unavailable(settings: TransportSettings) -> None:
    async def scenario() -> None:
        client = EngineClient(settings)
        await client.start()
        with pytest.raises(EngineUnavailable, match=r"within 0\.05 s"):
            await client.request(StatusRequest(), 0.05)
        assert client._pending == {}
        await client.close()

    asyncio.run(scenario())


def test_events_reach_every_subscriber(server: EngineServer, settings: TransportSettings) -> None:
    event = Committed(session="A", session_version=1, bars=1, topic="t", partition=0, offset=0, event_time=None)

    async def scenario() -> None:
        client = EngineClient(settings)
        await client.start()
        streams = [client.events(), client.events()]
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        sequence = 0
        while not all(future.done() for future in waiting):  # until both subscriptions have come through
            sequence += 1
            server.publish("boot", sequence, event)
            await asyncio.sleep(0.01)
        for future, stream in zip(waiting, streams, strict=True):
            assert isinstance(future.result(), EventEnvelope)
            assert (future.result().boot_id, future.result().event) == ("boot", event)
            await stream.aclose()  # type: ignore[attr-defined]
        await client.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))
