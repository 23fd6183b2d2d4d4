"""Consumer and engine over real sockets, whose connection breaks; Kafka is played."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from consumers.consumer import Consumer
from consumers.kafka.offsets import CommitPoint
from consumers.kafka.source import AssignmentChange, SourceEvent, SourcePartition
from consumers.wire.reasons import RawRecord
from consumers.writers.spool import Confirmation
from consumers.writers.windows import StoredWindows
from consumers.writers.writers import Writers
from stream_engine.config.config import Config
from stream_engine.config.engine import EngineSettings
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.messages.transport import EngineLink
from stream_engine.process.service import EngineService
from tests.integration.pipeline.relay import Relay
from tests.support.kv_memory import kv_memory_for
from tests.support.pipeline import make_engine
from tests.support.played_producer import PlayedSpool

PATIENCE_S = 60.0
SOURCE = SourcePartition("market.bars", 0)
START_S = 1_700_000_000


class Source:
    """One partition that grows as the test says; what is committed is ``point``."""

    def __init__(self) -> None:
        self.changes = [SourceEvent(AssignmentChange.ASSIGNED, SOURCE)]
        self.log: list[RawRecord] = []
        self.point: CommitPoint | None = None
        self._next = 0
        self._flows = False

    def grow(self, count: int) -> None:
        for offset in range(len(self.log), len(self.log) + count):
            bar = {"t": START_S + 60 * offset, "o": 100.0, "h": 101.0, "l": 99.0, "c": 100.0, "v": None}
            time_ms = 1000 * (START_S + 60 * offset)
            self.log.append(RawRecord(*SOURCE, offset, time_ms, b"AAPL", msgspec.json.encode(bar)))

    def events(self) -> list[SourceEvent]:
        changes, self.changes = self.changes, []
        return changes

    def committed(self, _: SourcePartition) -> CommitPoint | None:
        return self.point

    def bounds(self, _: SourcePartition) -> tuple[int, int]:
        return 0, len(self.log)

    def seek(self, _: SourcePartition, offset: int) -> bool:
        self._next = offset
        return True

    def stopped(self) -> dict[SourcePartition, str]:
        return {}

    def flow(self, partitions: set[SourcePartition]) -> None:
        self._flows = SOURCE in partitions

    def poll(self, _: int, most: int) -> dict[SourcePartition, list[RawRecord]]:
        found = self.log[self._next : self._next + most] if self._flows else []
        self._next += len(found)
        return {SOURCE: found} if found else {}

    def position(self, _: SourcePartition) -> int:
        return self._next

    def commit(self, points: Mapping[SourcePartition, CommitPoint]) -> None:
        self.point = points[SOURCE]

    def commits(self) -> list[dict[SourcePartition, CommitPoint]]:
        return [{SOURCE: self.point}] if self.point is not None else []

    def ends(self, _: Any) -> dict[SourcePartition, int]:
        return {}

    def sizes(self) -> dict[str, int]:
        return {}

    def silent_since(self) -> None:
        return None

    def commit_on_revoke(self, _: Any) -> None:
        pass


class Windows:
    """Writes all that it is given at once."""

    def __init__(self) -> None:
        self.spool = PlayedSpool()

    def write(self, source: SourcePartition, _: Any, generation: int, offset: int) -> None:
        self.spool.done.append(Confirmation(*source, generation, offset))

    def deleting(self, _: SourcePartition) -> bool:
        return False

    def acknowledged(self, *_: Any) -> None:
        pass


@pytest.fixture
def service(tmp_path: Path) -> Iterator[EngineService]:
    config = Config(
        kafka=KafkaSettings(standing_topic=""),
        engine=EngineSettings(kv_memory=kv_memory_for(4)),
        transport=TransportSettings(f"ipc://{tmp_path}/engine.sock", f"ipc://{tmp_path}/events.sock"),
    )
    made = EngineService(config, lambda emit: make_engine(config.engine, emit))
    stop = threading.Event()
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    yield made
    stop.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.fixture
def relay(service: EngineService, tmp_path: Path) -> Iterator[Relay]:
    made = Relay(tmp_path / "relay.sock", tmp_path / "engine.sock")
    yield made
    made.close()


def test_an_engine_that_was_reconnected_has_everything_acknowledged_in_the_end(
    service: EngineService,
    relay: Relay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr("consumers.starts.WindowLoad", lambda *_: SimpleNamespace(result=StoredWindows))
    transport = TransportSettings(f"ipc://{tmp_path}/relay.sock", f"ipc://{tmp_path}/events.sock")
    source: Any = Source()
    windows: Any = Windows()
    link = EngineLink(transport)
    consumer = Consumer(Config(transport=transport), source, Writers(windows, windows), link)
    request.addfinalizer(link.close)

    def turn_until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            consumer.turn()

    source.grow(20)
    turn_until(lambda: source.point is not None and source.point.offset == 20, "the first are committed")
    boot_id = consumer._watch.boot_id

    relay.deaf = True
    source.grow(40)
    applied = service.engine.ingest.partitions.applied
    turn_until(lambda: applied(0) == 60, "the engine applies what it cannot acknowledge")
    assert source.point.offset == 20
    relay.cut()

    turn_until(lambda: source.point.offset == 60, "all of it is acknowledged")
    source.grow(5)
    turn_until(lambda: source.point.offset == 65, "it goes on")
    assert consumer._watch.boot_id == boot_id
    assert service.engine.sessions["AAPL"].version == 65
