"""What the engine process takes in between two steps: bounded, and with the lease of the board kept meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.decision.gate import Gate
from stream_engine.messages import Assign, Batch, Query, Record, Restore, ToEngine
from stream_engine.messages.transport import Peer
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.service import MAX_MESSAGES, MAX_WEIGHT, EngineService
from stream_engine.session.session import Session, Source
from tests.support.batches import batch_of
from tests.support.clock import Clock

TOPIC = "market.bars"
API, CONSUMER = Peer(b"api", b"1"), Peer(b"consumer")
LEASE_S = 2.0
SLOW_S = 1.5


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(tmp_path: Path, service: EngineService, clock: Clock) -> BoardReader:
    return BoardReader.open(tmp_path / "board", 0, clock=clock.monotonic_ns)


@pytest.fixture
def service(
    make_bench: Callable[..., Any], builder: TokenBuilder, tmp_path: Path, clock: Clock
) -> Iterator[EngineService]:
    """One that nobody runs but the test."""
    config = Config(
        kafka=KafkaSettings(standing_topic=""),
        transport=TransportSettings(f"ipc://{tmp_path}/engine", f"ipc://{tmp_path}/events"),
    )
    meta = board_meta(builder.profile, Gate({}, {}, 0.0))
    board = BoardWriter.create(tmp_path / "board", meta, 16, 64, 1, LEASE_S, clock=clock.monotonic_ns)
    made = EngineService(config, lambda emit: make_bench(board=board).engine)
    yield made
    made.engine.close()
    made._server.close()


def deliver(service: EngineService, monkeypatch: pytest.MonkeyPatch, *messages: ToEngine) -> deque[Any]:
    """They are there, in this order; what is left in the queue has not been received."""
    queue = deque((API if isinstance(message, Query) else CONSUMER, message) for message in messages)

    def receive(timeout_ms: int, limit: int) -> list[Any]:
        return [queue.popleft() for _ in range(min(limit, len(queue)))]

    monkeypatch.setattr(service._server, "receive", receive)
    monkeypatch.setattr(service._server, "send", lambda peer, message: None)
    return queue


def batch(records: tuple[Record, ...]) -> Batch:
    return batch_of(records, records[0].offset - 1)


def test_a_step_comes_after_so_many_bars(
    service: EngineService, monkeypatch: pytest.MonkeyPatch, make_record: Callable[..., Record]
) -> None:
    records = [make_record("A", offset) for offset in range(MAX_WEIGHT * 3)]
    size = MAX_WEIGHT // 2
    batches = [batch(tuple(records[at : at + size])) for at in range(0, len(records), size)]
    queue = deliver(service, monkeypatch, Assign(TOPIC, 0, 1, 0, len(records)), *batches)
    left = []
    while queue:
        service._take_in(0)
        left.append(len(queue))
    assert left == [4, 2, 0]
    assert service.engine.counters.replayed_total == 0, "without a window they belong to nobody"
    assert service.engine.ingest.partitions.get(Source(TOPIC, 0)).taken == len(records) - 1


def test_a_step_comes_after_so_many_messages(service: EngineService, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = deliver(service, monkeypatch, *[Query("A", "What is the trend?")] * (MAX_MESSAGES + 3))
    service._take_in(0)
    assert len(queue) == 3


def test_only_the_first_message_is_waited_for(service: EngineService, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    replies = deque([[(API, Query("A", "?"))], [(API, Query("A", "?"))], []])

    def receive(timeout_ms: int, limit: int) -> list[Any]:
        waited.append(timeout_ms)
        return replies.popleft()

    monkeypatch.setattr(service._server, "receive", receive)
    monkeypatch.setattr(service._server, "send", lambda peer, message: None)
    service._take_in(20)
    assert waited == [20, 0, 0]


def test_the_lease_is_kept_while_messages_are_taken_in(
    service: EngineService, reader: BoardReader, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = []

    def slow(peer: Peer, message: ToEngine) -> None:
        alive.append(reader.alive())
        clock.forward(SLOW_S)

    monkeypatch.setitem(service._handlers, Query, slow)
    queue = deliver(service, monkeypatch, *[Query("A", "?")] * 5)
    service._take_in(0)
    assert not queue
    assert alive == [True] * 5


def test_the_lease_is_kept_while_windows_are_refilled(
    service: EngineService,
    builder: TokenBuilder,
    reader: BoardReader,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    make_record: Callable[..., Record],
) -> None:
    """Windows and replayed records that take nearly as long as a lease each, many of them in a message."""
    windows = []
    for number, key in enumerate("ABC"):
        session = Session(key, builder, Source(TOPIC, 0))
        session.apply(make_record(key, number))
        windows.append(session.window_message())
    records = tuple(make_record("ABC"[offset % 3], offset) for offset in range(3, 9))
    alive = []

    def slowly(work: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any) -> Any:
            alive.append(reader.alive())
            clock.forward(SLOW_S)
            return work(*arguments)

        return slow

    monkeypatch.setattr(Session, "restore", slowly(Session.restore))
    monkeypatch.setattr(Session, "apply", slowly(Session.apply))
    deliver(service, monkeypatch, Assign(TOPIC, 0, 1, 3, 9), Restore(TOPIC, 0, 1, tuple(windows)), batch(records))
    service._take_in(0)
    assert service.engine.counters.replayed_total == 6
    assert alive == [True] * 9


def test_the_lease_is_kept_when_a_commit_takes_as_long_as_its_step(
    service: EngineService,
    reader: BoardReader,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    make_record: Callable[..., Record],
) -> None:
    deliver(service, monkeypatch, Assign(TOPIC, 0, 1, 0, 0), batch((make_record("A", 0),)))
    service._take_in(0)
    apply, run, alive = Session.apply, service.engine._runner.run, []

    def slow_apply(session: Session, record: Record) -> Any:
        clock.forward(SLOW_S)
        return apply(session, record)

    def slow_run(segments: Any) -> Any:
        clock.forward(SLOW_S)
        alive.append(reader.alive())
        return run(segments)

    monkeypatch.setattr(Session, "apply", slow_apply)
    monkeypatch.setattr(service.engine._runner, "run", slow_run)
    assert service.engine.step()
    assert alive == [True]
