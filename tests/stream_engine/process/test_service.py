"""The engine process over its real sockets, in a thread, on the fake model."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq

import stream_engine.process.desks.consumer_desk as consumer_desk_module
from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.config.config import Config
from stream_engine.config.engine import EngineSettings
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.decision.gate import Gate
from stream_engine.decision.reading import Miss
from stream_engine.messages import (
    Ack,
    Answer,
    AnswerChanged,
    Assign,
    Batch,
    Committed,
    ConsumerHello,
    ConsumerReport,
    Done,
    ErrorReply,
    EventEnvelope,
    FromEngine,
    Query,
    Record,
    Refused,
    Revoke,
    SessionDelete,
    Sessions,
    SessionsRequest,
    Snapshot,
    SnapshotRequest,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingRequest,
    Status,
    StatusRequest,
    Welcome,
)
from stream_engine.messages.transport import EngineClient, EngineLink
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.service import EngineService
from tests.support.batches import batch_of

TOPIC = "market.bars"
TREND = "What is the trend?"
PATIENCE_S = 20.0


@dataclass
class Running:
    """A service in its thread, and the sockets of this test."""

    config: Config
    service: EngineService
    stop: threading.Event
    thread: threading.Thread
    board: Path

    def end(self) -> None:
        self.stop.set()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()

    def ask(self, *messages: Any) -> list[FromEngine]:
        """Requests of an API process, one after another."""

        async def scenario() -> list[FromEngine]:
            client = EngineClient(self.config.transport)
            await client.start()
            try:
                return [await client.request(message, PATIENCE_S) for message in messages]
            finally:
                await client.close()

        return asyncio.run(scenario())

    def one(self, message: Any) -> Any:
        return self.ask(message)[0]


class Consumer:
    """A consumer process: its link, and what came back."""

    def __init__(self, running: Running) -> None:
        self.link = EngineLink(running.config.transport)

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.link.send(message)

    def next(self) -> FromEngine:
        received = self.link.drain(int(PATIENCE_S * 1000))
        assert len(received) == 1, received
        return received[0]

    def until(self, last: int) -> list[Ack]:
        """Acknowledgements up to the one of offset ``last``."""
        acks: list[Ack] = []
        while not acks or acks[-1].last < last:
            received = self.link.drain(int(PATIENCE_S * 1000))
            assert received, f"no acknowledgement of {last}: {acks}"
            for message in received:
                assert isinstance(message, Ack), message
                acks.append(message)
        return acks


@pytest.fixture
def running(make_bench: Callable[..., Any], builder: TokenBuilder, tmp_path: Path) -> Iterator[Running]:
    config = Config(
        kafka=KafkaSettings(standing_topic=""),  # standing queries are kept by the engine alone
        engine=EngineSettings(credits=77, stuck_after_s=60.0),
        transport=TransportSettings(f"ipc://{tmp_path}/engine.sock", f"ipc://{tmp_path}/events.sock"),
    )
    path = tmp_path / "board"
    board = BoardWriter.create(path, board_meta(builder.profile, Gate({}, {}, 0.0)), 16, 64, 1, 60.0)

    def build(emit: Any) -> Any:
        return make_bench(board=board, credits=77, emit=emit).engine

    service = EngineService(config, build)
    stop = threading.Event()
    thread = threading.Thread(target=service.run, args=(stop,), daemon=True)
    thread.start()
    made = Running(config, service, stop, thread, path)
    yield made
    made.end()


@pytest.fixture
def consumer(running: Running) -> Iterator[Consumer]:
    made = Consumer(running)
    yield made
    made.link.close()


@pytest.fixture
def fed(consumer: Consumer, make_record: Callable[..., Record]) -> Consumer:
    """A consumer whose partition holds 40 bars of AAPL, acknowledged."""
    consumer.send(Assign(TOPIC, 0, 1, 0, 0), batch([make_record("AAPL", offset) for offset in range(40)]))
    consumer.until(39)
    return consumer


def batch(records: Sequence[Record], generation: int = 1) -> Batch:
    first, last = records[0].offset, records[-1].offset
    return batch_of(records, first - 1, last=last, generation=generation)


def test_hello_is_welcomed_with_boot_id_credits_and_the_connection(running: Running, consumer: Consumer) -> None:
    other = Consumer(running)
    links = []
    for client in (consumer, consumer, other):
        client.send(ConsumerHello((TOPIC,)))
        welcome = client.next()
        assert isinstance(welcome, Welcome)
        assert (welcome.boot_id, welcome.credits) == (running.service.engine.boot_id, 77)
        links.append(welcome.link)
    assert links[0] == links[1] != links[2]
    other.link.close()


def test_batches_are_acknowledged_with_their_floor_or_refused(
    running: Running, consumer: Consumer, make_record: Callable[..., Record]
) -> None:
    consumer.send(Assign(TOPIC, 0, 1, 5, 5), batch([make_record("A", offset) for offset in (5, 6, 9)]))
    (ack,) = consumer.until(9)
    assert (ack.boot_id, ack.generation, ack.last) == (running.service.engine.boot_id, 1, 9)
    assert [(window.session, window.offset) for window in ack.windows] == [("A", 9)]
    assert ack.floor == 10  # the session's window holds all of it
    consumer.send(batch([make_record("A", 12)]))  # follows 11, which never came
    refused = consumer.next()
    assert isinstance(refused, Refused)
    assert (refused.boot_id, refused.expected_follows) == (running.service.engine.boot_id, 9)
    consumer.send(batch_of((), 9, last=20, consumed=11))
    assert [ack.last for ack in consumer.until(20)] == [20]


def test_an_older_consumer_does_not_take_the_acknowledgements(
    running: Running, consumer: Consumer, make_record: Callable[..., Record]
) -> None:
    zombie = Consumer(running)
    consumer.send(Assign(TOPIC, 0, 7, 0, 0))
    consumer.send(ConsumerHello((TOPIC,)))
    assert isinstance(consumer.next(), Welcome)
    zombie.send(Assign(TOPIC, 0, 6, 0, 0), batch([make_record("A", 0)], generation=6))
    refused = zombie.next()
    assert isinstance(refused, Refused)
    consumer.send(batch([make_record("A", 0)], generation=7))
    assert [ack.last for ack in consumer.until(0)] == [0]
    zombie.link.close()


def test_a_newer_consumer_gets_them(running: Running, fed: Consumer, make_record: Callable[..., Record]) -> None:
    newer = Consumer(running)
    newer.send(Assign(TOPIC, 0, 2, 30, 30), batch([make_record("AAPL", n) for n in range(30, 41)], generation=2))
    (ack,) = newer.until(40)
    assert (ack.generation, ack.duplicates, ack.applied) == (2, 10, 1)
    newer.send(Revoke(TOPIC, 0, 2), batch([make_record("AAPL", 41)], generation=2))
    assert isinstance(newer.next(), Refused)
    newer.link.close()


def test_queries_sessions_and_deletion(running: Running, fed: Consumer) -> None:
    answer, forced, unknown, refused = running.ask(
        Query("AAPL", TREND),
        Query("AAPL", TREND, path="full"),
        Query("MSFT", TREND),
        Query("AAPL", "What is the price?"),
    )
    assert isinstance(answer, Answer)
    assert (answer.session, answer.offset, answer.session_version) == ("AAPL", 39, 40)
    assert isinstance(forced, Answer)
    assert forced.gate is None
    assert isinstance(unknown, ErrorReply)
    assert unknown.status == 404
    assert isinstance(refused, ErrorReply)
    assert refused.status == 422
    everything, single, absent, deleted, again, left = running.ask(
        SessionsRequest(),
        SessionsRequest("AAPL"),
        SessionsRequest("MSFT"),
        SessionDelete("AAPL"),
        SessionDelete("AAPL"),
        SessionsRequest(),
    )
    assert everything == single
    assert isinstance(absent, ErrorReply)
    assert isinstance(deleted, Done)
    assert "next record" in deleted.detail
    assert isinstance(again, ErrorReply)
    assert left == Sessions(())


def test_a_query_waits_for_its_own_write(
    running: Running, fed: Consumer, make_record: Callable[..., Record]
) -> None:
    async def scenario() -> FromEngine:
        client = EngineClient(running.config.transport)
        await client.start()
        asked = asyncio.create_task(
            client.request(Query("AAPL", TREND, min_version=41, wait_ms=20_000), PATIENCE_S)
        )
        await asyncio.sleep(0)  # it is sent first
        status = await client.request(StatusRequest(), PATIENCE_S)
        assert isinstance(status, Status)
        assert status.gauges["queue_queries_waiting"] == 1
        fed.send(batch([make_record("AAPL", 40)]))
        try:
            return await asked
        finally:
            await client.close()

    answer = asyncio.run(scenario())
    assert isinstance(answer, Answer)
    assert answer.offset == 40


def test_standing_queries_are_kept_by_id(running: Running) -> None:
    put, refused, listed, shown, unknown, deleted, again = running.ask(
        StandingPut("[x]?*", TREND, "commit", "mine"),
        StandingPut("*", "What is the price?"),
        StandingRequest(),
        StandingRequest("mine"),
        StandingRequest("other"),
        StandingDelete("mine"),
        StandingDelete("mine"),
    )
    assert isinstance(put, StandingQueries)
    assert (put.queries[0].id, put.queries[0].session, put.queries[0].on) == ("mine", "[x]?*", "commit")
    assert isinstance(refused, ErrorReply)
    assert refused.status == 422
    assert put == listed == shown
    assert isinstance(unknown, ErrorReply)
    assert (unknown.status, unknown.param) == (404, "id")
    assert isinstance(deleted, Done)
    assert isinstance(again, ErrorReply)


def with_events(
    running: Running, work: Callable[[EngineClient], Awaitable[None]], count: int
) -> list[EventEnvelope]:
    """The events of ``work``, once ``count`` have come; it starts when the subscription works."""

    async def scenario() -> list[EventEnvelope]:
        client = EngineClient(running.config.transport)
        await client.start()
        got: list[EventEnvelope] = []
        listening = asyncio.Event()

        async def listen() -> None:
            async for envelope in client.events():
                listening.set()
                if not (isinstance(envelope.event, AnswerChanged) and envelope.event.query == "probe"):
                    got.append(envelope)
                if len(got) == count:
                    return

        task = asyncio.create_task(listen())
        while not listening.is_set():  # registered anew, it is evaluated anew: an event to listen for
            await client.request(StandingPut("AAPL", TREND, id="probe"), PATIENCE_S)
            await client.request(StandingDelete("probe"), PATIENCE_S)
            await asyncio.sleep(0.01)
        await work(client)
        await asyncio.wait_for(task, PATIENCE_S)
        await client.close()
        return got

    return asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def test_events_are_numbered_and_follow_a_snapshot(
    running: Running, fed: Consumer, make_record: Callable[..., Record]
) -> None:
    snapshots: list[FromEngine] = []

    async def work(client: EngineClient) -> None:
        await client.request(StandingPut("AAPL", TREND, "commit", "mine"), PATIENCE_S)
        while not snapshots or not snapshots[-1].answers:  # type: ignore[union-attr]
            snapshots.append(await client.request(SnapshotRequest("AAPL", "mine"), PATIENCE_S))
        fed.send(batch([make_record("AAPL", 40)]))

    events = with_events(running, work, 3)
    assert {envelope.boot_id for envelope in events} == {running.service.engine.boot_id}
    numbers = [envelope.sequence for envelope in events]
    assert numbers == sorted(set(numbers))
    assert [type(envelope.event) for envelope in events] == [AnswerChanged, Committed, AnswerChanged]
    assert [envelope.event.session_version for envelope in events] == [40, 41, 41]
    snapshot = snapshots[-1]
    assert isinstance(snapshot, Snapshot)
    assert snapshot.sequence == events[0].sequence
    assert snapshot.answers == (events[0].event,)


def test_status_gives_reasons_until_a_consumer_and_a_partition_are_there(
    running: Running, consumer: Consumer
) -> None:
    first = running.one(StatusRequest())
    assert not first.ready
    assert "no consumer" in first.reasons[0]
    consumer.send(ConsumerHello((TOPIC,)))
    consumer.next()
    assert running.one(StatusRequest()).reasons == ("no partition is assigned yet",)
    consumer.send(ConsumerReport({f"{TOPIC}/0": 3}, {"commits_total": 1.0}), Assign(TOPIC, 0, 1, 0, 0))
    consumer.send(batch_of((), last=0, consumed=1))
    consumer.until(0)
    last = running.one(StatusRequest())
    assert (last.ready, last.consumers, last.lag) == (True, 1, {f"{TOPIC}/0": 3})
    assert list(last.consumer_counters.values()) == [{"commits_total": 1.0}]


def test_consumers_that_went_silent_are_forgotten(
    running: Running, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer.send(ConsumerHello((TOPIC,)), ConsumerReport({f"{TOPIC}/0": 3}, {}))
    consumer.next()
    assert running.one(StatusRequest()).consumers == 1

    class Later:
        monotonic = staticmethod(lambda: time.monotonic() + 61)

    monkeypatch.setattr(consumer_desk_module, "time", Later)
    last = running.one(StatusRequest())
    assert (last.consumers, last.lag) == (0, {})


def test_rubbish_on_the_socket_is_counted_and_harms_nobody(running: Running, fed: Consumer) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(running.config.transport.engine)
    for frames in ([b""], [b"", b"\xc1"], [b"", b"\x91" * 50_000], [b"1", b"2", b"3"]):
        socket.send_multipart(frames)
    status = running.one(StatusRequest())
    while status.counters["messages_malformed_total"] < 4:  # another socket: it may come a little later
        status = running.one(StatusRequest())
    assert status.counters["messages_malformed_total"] == 4
    assert isinstance(running.one(Query("AAPL", TREND)), Answer)
    socket.close(linger=0)
    context.term()


def test_a_clean_stop_leaves_nothing_that_a_reader_would_serve(running: Running, fed: Consumer) -> None:
    reader = BoardReader.open(running.board, 0)
    assert not isinstance(reader.read("AAPL", ""), Miss)
    running.end()
    assert isinstance(reader.read("AAPL", ""), Miss)
    assert not reader.alive()
    assert not running.board.exists()


def test_an_engine_that_fails_leaves_nothing_either(
    running: Running, fed: Consumer, make_record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    reader = BoardReader.open(running.board, 0)

    def broken(segments: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(running.service.engine._runner, "run", broken)
    fed.send(batch([make_record("AAPL", 40)]))
    running.thread.join(PATIENCE_S)
    assert not running.thread.is_alive()
    assert len(failures) == 1
    assert isinstance(reader.read("AAPL", ""), Miss)
    assert not reader.alive()
