"""What comes over a socket and cannot be read, or is too large to send, costs itself at every end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stream_engine.config.transport import TransportSettings
from stream_engine.messages import ConsumerHello, Done, ErrorReply, FromEngine, StatusRequest, Welcome
from stream_engine.messages.transport import EngineClient, EngineLink, EngineServer, EngineUnavailable, Peer
from tests.support.hostile import NESTED
from tests.support.strangers_engine import PATIENCE_MS, decode


@pytest.fixture
def endpoints(tmp_path: Path) -> TransportSettings:
    return TransportSettings(f"ipc://{tmp_path}/engine", f"ipc://{tmp_path}/events")


def test_what_a_consumer_cannot_read_is_skipped(endpoints: TransportSettings) -> None:
    server = EngineServer(endpoints)
    link = EngineLink(endpoints)
    link.send(ConsumerHello(("market.bars",)))
    ((peer, _),) = server.receive(PATIENCE_MS)
    rubbish = (b"\xc1", NESTED, b"\x91" * 50_000, msgspec.msgpack.encode({"type": "Ack"}), b"")
    for payload in rubbish:
        server._router.send_multipart((peer.identity, b"", payload))
    server._router.send_multipart((peer.identity, b"a", b"b", b"c"))
    server.send(peer, Welcome("boot", 1))
    received: list[FromEngine] = []
    while not received:
        received = link.drain(PATIENCE_MS)
    assert received == [Welcome("boot", 1)]
    assert link._skipped.counts == {"engine_message_unreadable": len(rubbish)}
    link.close()
    server.close()


def test_a_reply_that_is_too_large_is_told_instead(
    endpoints: TransportSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_engine.messages.transport.MAX_FRAME_BYTES", 1_000)
    server = EngineServer(endpoints)
    router = server._router
    sent: list[Any] = []
    played = SimpleNamespace(send_multipart=lambda frames, flags: sent.append(frames))
    monkeypatch.setattr(server, "_router", played)
    server.send(Peer(b"api", b"1"), Done("x" * 2_000))
    server.send(Peer(b"consumer"), Done("x" * 2_000))
    ((identity, correlation, payload),) = sent
    reply = decode(payload)
    assert (identity, correlation) == (b"api", b"1")
    assert isinstance(reply, ErrorReply)
    assert reply.kind == "reply_too_large"
    assert server.skipped.counts == {"reply_too_large": 2}
    monkeypatch.setattr(server, "_router", router)
    server.close()


def test_a_reply_that_cannot_be_read_is_no_answer_and_the_next_one_is(endpoints: TransportSettings) -> None:
    server = EngineServer(endpoints)

    async def scenario() -> None:
        client = EngineClient(endpoints)
        await client.start()
        for payloads in ([NESTED], [b"\x91" * 50_000], [b"\xc1"], [b"a", b"b"], [msgspec.msgpack.encode(Done())]):
            asked = asyncio.create_task(client.request(StatusRequest(), 30))
            ((peer, _),) = await asyncio.to_thread(server.receive, PATIENCE_MS)
            server._router.send_multipart((peer.identity, peer.correlation, *payloads))
            if len(payloads) == 1 and payloads[0][:1] not in (b"{", b"\x91", b"\xc1"):
                assert await asked == Done()
            else:
                with pytest.raises(EngineUnavailable, match="cannot be read"):
                    await asked
        assert client._skipped.counts == {"reply_unreadable": 4}
        await client.close()

    asyncio.run(scenario())
    server.close()
