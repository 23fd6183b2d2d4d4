"""Consumer and engine of one deployment, in threads, between a real broker and a model that answers one word."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from consumers.kafka.topics import ensure_topics
from consumers.process import run_consumer
from stream_engine.config.config import Config
from stream_engine.config.engine import EngineSettings
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.engine.engine import Engine
from stream_engine.messages import Event, RecordCounts, Status, StatusRequest
from stream_engine.messages.transport import EngineLink
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Segment
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_gate import build_gate
from stream_engine.process.service import EngineService
from stream_engine.state.engine_state import new_state
from stream_engine.state.live_gate import LiveGate
from tests.support.kv_memory import kv_memory_for

PATIENCE_S = 60.0


class OneWordRunner:
    """Always the same answer: what counts here is which tokens there are."""

    def __init__(self, builder: TokenBuilder) -> None:
        self._answer = SegmentResult((Distribution(min(builder.answers), 0, 5.0, 5.0, 6.0, 0.9),))

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        return [SegmentResult(self._answer.branches * len(segment.branches)) for segment in segments]

    def copy(self, source: int, target: int, count: int) -> None:
        pass


def make_engine(settings: EngineSettings, emit: Callable[[Event], None] = lambda event: None) -> Engine:
    builder = TokenBuilder.load(EMBEDDED)
    shape, gate = budget_shape(settings, builder), build_gate(builder)
    state = new_state(settings, builder, shape, LiveGate(gate))
    return Engine(settings, builder, OneWordRunner(builder), state, emit)


class Pipeline:
    """``engine`` is that of the present life."""

    def __init__(
        self, bootstrap: str, prefix: str, folder: Path, engine: dict[str, Any], kafka: dict[str, Any]
    ) -> None:
        names = {f"{name}_topic": prefix + name for name in ("bars", "trades", "windows", "standing", "answers")}
        self.kafka = KafkaSettings(
            bootstrap_servers=bootstrap, group_id=prefix + "group", **{"partitions": 1} | names | kafka
        )
        transport = TransportSettings(f"ipc://{folder}/engine.sock", f"ipc://{folder}/events.sock")
        self.config = Config(
            kafka=self.kafka,
            transport=transport,
            engine=EngineSettings(**{"kv_memory": kv_memory_for(4)} | engine),
        )
        ensure_topics(self.kafka)
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=2)
        self.viewer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=self.kafka.group_id, enable_auto_commit=False
        )
        self.service: EngineService
        self._running: dict[str, tuple[threading.Event, threading.Thread]] = {}

    @property
    def engine(self) -> Engine:
        return self.service.engine

    def start_engine(self) -> None:
        """An engine that knows nothing."""
        self.service = EngineService(self.config, lambda emit: make_engine(self.config.engine, emit))
        self._run("engine", self.service.run)

    def start_consumer(self) -> None:
        self._run("consumer", lambda stop: run_consumer(self.config, stop))

    def _run(self, name: str, body: Callable[[threading.Event], None]) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=body, args=(stop,), name=name)
        thread.start()
        self._running[name] = stop, thread

    def stop(self, name: str) -> None:
        stop, thread = self._running.pop(name)
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def put(self, topic: str, records: Sequence[tuple[str | None, Any]], partition: int = 0) -> int:
        """Keys with values (bytes, or what becomes JSON); the offset after the last."""
        futures = [
            self.producer.send(
                topic,
                key=None if key is None else key.encode(),
                value=value if isinstance(value, bytes) else json.dumps(value).encode(),
                partition=partition,
            )
            for key, value in records
        ]
        return int(futures[-1].get(timeout=PATIENCE_S).offset) + 1

    def committed(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Committed offset and floor; -1 where there is none."""
        found = self.viewer.committed(TopicPartition(topic, partition), metadata=True, timeout_ms=10_000)
        return (-1, -1) if found is None else (found.offset, json.loads(found.metadata)["floor"])

    def until_committed(self, topic: str, offset: int, partition: int = 0) -> int:
        """Wait until that offset is committed; its floor."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.committed(topic, partition))[0] < offset:
            assert time.monotonic() < deadline, f"{topic}: committed {found}, not {offset}"
            assert all(thread.is_alive() for _, thread in self._running.values()), "a thread ended by an error"
            time.sleep(0.05)
        return found[1]

    def status(self) -> Status:
        """As an API process gets it."""
        link = EngineLink(self.config.transport)
        link.send(StatusRequest())
        found = [message for message in link.drain(int(PATIENCE_S * 1000)) if isinstance(message, Status)]
        link.close()
        return found[-1]

    def counts(self, topic: str, consumed: int, partition: int = 0) -> RecordCounts:
        """What became of a partition's records in this life of the consumer, once so many are reported."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = [
                counts.get(f"{topic}/{partition}", RecordCounts()) for counts in self.status().records.values()
            ]
            counts = RecordCounts(*map(sum, zip(*map(msgspec.structs.astuple, found), strict=True)))
            if counts.consumed >= consumed:
                return counts
            assert time.monotonic() < deadline, f"never reported: {counts}"
            time.sleep(0.2)

    def dead_letters(self, topic: str) -> list[tuple[int, str]]:
        """Offset and reason of each dead letter of a topic."""
        return [
            (int(dict(record.headers)["offset"]), dict(record.headers)["reason"].decode())
            for record in self.read(topic + self.kafka.dead_letter_suffix)
        ]

    def read(self, topic: str, partition: int = 0) -> list[Any]:
        """Every record that a partition holds now."""
        reader = KafkaConsumer(
            bootstrap_servers=self.kafka.bootstrap_servers, group_id=None, auto_offset_reset="earliest"
        )
        tp = TopicPartition(topic, partition)
        reader.assign([tp])
        end, found = reader.end_offsets([tp])[tp], []
        while reader.position(tp) < end:
            found += reader.poll(500).get(tp, [])
        reader.close()
        return found

    def close(self) -> None:
        for name in ("consumer", "engine"):
            if name in self._running:
                self.stop(name)
        self.producer.close(timeout=5)
        self.viewer.close(timeout_ms=5_000)
