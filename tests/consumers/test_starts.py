"""Which partitions start, and which wait for others."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from consumers.consumer import Consumer
from consumers.engine_watch import EngineWatch
from consumers.kafka.source import AssignmentChange, SourceEvent, SourcePartition, SourceUnavailable
from consumers.stream import StreamState
from consumers.writers.windows import StoredWindows
from consumers.writers.writers import Writers
from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import FromEngine, Welcome
from tests.support.played_producer import PlayedSpool


class Load:
    """The windows beside a partition: none, once they have been ``read``."""

    read = True

    def __init__(self, *_: Any) -> None:
        pass

    def result(self) -> StoredWindows | None:
        return StoredWindows() if Load.read else None


class Source:
    """A broker that answers every lookup, and gives what a test puts into ``changes``."""

    def __init__(self) -> None:
        self.changes: list[SourceEvent] = []
        self.looked_up: list[SourcePartition] = []
        self.silent = False

    def events(self) -> list[SourceEvent]:
        changes, self.changes = self.changes, []
        return changes

    def committed(self, partition: SourcePartition) -> None:
        self.looked_up.append(partition)
        if self.silent:
            self.wait(partition)
            raise SourceUnavailable("no answer")

    def bounds(self, _: SourcePartition) -> tuple[int, int]:
        return 0, 5

    def seek(self, *_: Any) -> bool:
        return True

    def poll(self, *_: Any) -> dict[SourcePartition, Any]:
        return {}

    def ends(self, _: Any) -> dict[SourcePartition, int]:
        return {}

    def stopped(self) -> dict[SourcePartition, str]:
        return {}

    def sizes(self) -> dict[str, int]:
        return {}

    def commits(self) -> list[Any]:
        return []

    def position(self, _: SourcePartition) -> int:
        return 0

    def silent_since(self) -> None:
        return None

    def nothing(self, *_: Any) -> None:
        pass

    flow = commit = commit_on_revoke = wait = nothing


class Bench:
    """A consumer of bars and trades, without a broker and without an engine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("consumers.starts.WindowLoad", Load)
        monkeypatch.setattr(Load, "read", True)
        self.kafka = KafkaSettings(trades_topic="market.trades")
        self.source, self.messages = Source(), list[FromEngine]()
        writer: Any = SimpleNamespace(spool=PlayedSpool(), deleting=lambda _: False, acknowledged=lambda *_: None)
        link: Any = SimpleNamespace(drain=self._drain, send=lambda _: None)
        source: Any = self.source
        self.consumer = Consumer(Config(kafka=self.kafka), source, Writers(writer, writer), link)

    def _drain(self, _: int) -> list[FromEngine]:
        messages, self.messages = self.messages, []
        return messages

    def assign(self, topic: str) -> None:
        self.source.changes += [
            SourceEvent(AssignmentChange.ASSIGNED, SourcePartition(topic, n)) for n in range(4)
        ]

    def turn(self, boot_id: str | None = None, link: bytes = b"") -> None:
        if boot_id is not None:
            self.messages.append(Welcome(boot_id, 1000, link))
        self.consumer.turn()

    def streaming(self) -> set[str]:
        streams = self.consumer._streams.values()
        return {s.partition.topic for s in streams if s.state is StreamState.STREAMING}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_an_engine_that_restarts_while_trades_are_loading_is_given_bars_and_trades(bench: Bench) -> None:
    bench.assign(bench.kafka.bars_topic)
    bench.turn("boot-1")
    for _ in range(2):
        bench.turn()
    assert bench.streaming() == {bench.kafka.bars_topic}
    Load.read = False
    bench.assign(bench.kafka.trades_topic)
    for _ in range(2):
        bench.turn()
    Load.read = True
    bench.turn("boot-2")
    for _ in range(4):
        bench.turn()
    assert bench.streaming() == {bench.kafka.bars_topic, bench.kafka.trades_topic}


def test_a_registry_that_ended_ends_the_consumer_while_all_partitions_stream(bench: Bench) -> None:
    registry: Any = SimpleNamespace(failure=None, stopped={}, ready_for=lambda *_: True)
    bench.consumer._registry = registry
    bench.assign(bench.kafka.bars_topic)
    bench.turn("boot-1")
    for _ in range(2):
        bench.turn()
    assert bench.streaming() == {bench.kafka.bars_topic}
    registry.failure = RuntimeError("the registry is gone")
    with pytest.raises(RuntimeError, match="the registry is gone"):
        bench.turn()


def test_a_connection_that_was_lost_starts_everything_anew(bench: Bench) -> None:
    bench.assign(bench.kafka.bars_topic)
    bench.turn("boot-1", b"1")
    for _ in range(2):
        bench.turn()
    streams = bench.consumer._streams.values()
    before = {stream.partition: stream.generation for stream in streams}
    bench.turn("boot-1", b"1")
    assert {stream.partition: stream.generation for stream in streams} == before
    bench.turn("boot-1", b"2")
    for _ in range(2):
        bench.turn()
    assert bench.streaming() == {bench.kafka.bars_topic}
    assert all(stream.generation > before[stream.partition] for stream in streams)


def test_bars_that_come_while_trades_are_loading_have_their_places(bench: Bench) -> None:
    Load.read = False
    bench.assign(bench.kafka.trades_topic)
    bench.turn("boot-1")
    bench.turn()
    bench.assign(bench.kafka.bars_topic)
    bench.turn()
    Load.read = True
    for _ in range(5):
        bench.turn()
    assert bench.streaming() == {bench.kafka.bars_topic, bench.kafka.trades_topic}


def test_a_broker_that_does_not_answer_is_asked_once_a_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    bench.consumer._watch = EngineWatch(clock.now)
    for module in ("consumers.consumer.time", "consumers.starts.time"):
        monkeypatch.setattr(module, SimpleNamespace(monotonic=lambda: clock.now, time_ns=time.time_ns))
    bench.source.silent = True

    def wait(_: SourcePartition) -> None:
        clock.now += 5.0

    monkeypatch.setattr(bench.source, "wait", wait)
    bench.assign(bench.kafka.bars_topic)
    bench.turn("boot-1")
    for turn in range(1, 4):
        bench.turn("boot-1")
        assert len(bench.source.looked_up) == turn
        bench.turn("boot-1")
        assert len(bench.source.looked_up) == turn  # a pause, of the clock after the lookup
        clock.now += 0.99
        bench.turn("boot-1")
        assert len(bench.source.looked_up) == turn
        clock.now += 0.01
    bench.source.silent = False
    bench.turn("boot-1")
    assert len(bench.source.looked_up) == 3 + 4
    bench.turn("boot-1")
    assert bench.streaming() == {bench.kafka.bars_topic}
