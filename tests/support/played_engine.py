"""An engine played by the test, and a consumer that talks to it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from consumers.consumer import Consumer
from consumers.kafka.source import KafkaSource
from consumers.kafka.topics import ensure_topics
from consumers.writers.dead_letter import DeadLetterWriter
from consumers.writers.windows import WindowWriter
from consumers.writers.writers import Writers
from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.messages import (
    Ack,
    Assign,
    Batch,
    ConsumerHello,
    ConsumerReport,
    Refused,
    Rejected,
    Revoke,
    Welcome,
)
from stream_engine.messages.transport import EngineLink, EngineServer, Peer

PATIENCE_S = 90.0
START_US = 1_700_000_000_000_000


class PlayedEngine:
    """The engine's socket, pumped by the test: it welcomes, and acknowledges when it is told to."""

    def __init__(self, settings: TransportSettings, boot_id: str, credits_: int = 1000, acks: bool = True) -> None:
        self.server = EngineServer(settings)
        self.boot_id = boot_id
        self.credits = credits_
        self.acks = acks
        self.floor_back = 0
        self.reject: dict[int, str] = {}
        self.assigns: list[Assign] = []
        self.revokes: list[Revoke] = []
        self.batches: list[Batch] = []
        self.unacknowledged: list[Batch] = []
        self.reports: list[ConsumerReport] = []
        self.senders: dict[int, Peer] = {}  # by generation

    def pump(self) -> None:
        for peer, message in self.server.receive(20):
            if isinstance(message, ConsumerHello):
                self.server.send(peer, Welcome(self.boot_id, self.credits))
            elif isinstance(message, ConsumerReport):
                self.reports.append(message)
            elif isinstance(message, Assign):
                self.assigns.append(message)
                self.senders[message.generation] = peer.unsolicited()
            elif isinstance(message, Revoke):
                self.revokes.append(message)
            elif isinstance(message, Batch):
                self.batches.append(message)
                self.unacknowledged.append(message)
        if self.acks:
            self.acknowledge()

    def acknowledge(self) -> None:
        for batch in self.unacknowledged:
            offsets = range(batch.follows + 1, batch.last + 1)
            rejected = tuple(Rejected(o, self.reject[o], "as scripted") for o in offsets if o in self.reject)
            floor = max(0, batch.last + 1 - self.floor_back)
            self.send(
                Ack(
                    boot_id=self.boot_id,
                    topic=batch.topic,
                    partition=batch.partition,
                    generation=batch.generation,
                    last=batch.last,
                    floor=floor,
                    rejected=rejected,
                )
            )
        self.unacknowledged.clear()

    def refuse(self, batch: Batch) -> None:
        self.send(
            Refused(
                boot_id=self.boot_id,
                topic=batch.topic,
                partition=batch.partition,
                generation=batch.generation,
                expected_follows=None,
                reason="as scripted",
            )
        )

    def send(self, message: Ack | Refused) -> None:
        self.server.send(self.senders[message.generation], message)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            self.pump()

    def for_turns(self, turns: int) -> None:
        for _ in range(turns):
            self.pump()

    def offsets(self, partition: int = 0) -> list[int]:
        return [r.offset for b in self.batches if b.partition == partition for r in b.records]


class Bench:
    """One topic, one group, one consumer in a thread, and the clients to look at them."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        folder: Path,
        partitions: int = 1,
        trades: bool = False,
        **kafka: Any,
    ) -> None:
        """With ``trades``, the consumers read that topic as well."""
        self.trades = trades
        self.settings = KafkaSettings(
            bootstrap_servers=bootstrap,
            group_id=prefix + "group",
            bars_topic=prefix + "bars",
            trades_topic=prefix + "trades",
            windows_topic=prefix + "windows",
            partitions=partitions,
            **kafka,
        )
        transport = TransportSettings(f"ipc://{folder}/engine.sock", f"ipc://{folder}/events.sock")
        self.config = Config(kafka=self.settings, transport=transport)
        self.topic = self.settings.bars_topic
        ensure_topics(self.settings)
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
        self.viewer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=self.settings.group_id, enable_auto_commit=False
        )
        self.engines: list[PlayedEngine] = []
        self.running: list[tuple[Consumer, threading.Event, threading.Thread]] = []
        self.failure: BaseException | None = None

    def engine(self, boot_id: str, **script: Any) -> PlayedEngine:
        played = PlayedEngine(self.config.transport, boot_id, **script)
        self.engines.append(played)
        return played

    def build(self, **changed: Any) -> Consumer:
        """A consumer that the test runs by hand, of these settings with some changed."""
        settings = replace(self.settings, **changed)
        source = KafkaSource(settings, settings.source_topics if self.trades else [self.topic])
        link = EngineLink(self.config.transport)
        letters = DeadLetterWriter(settings)
        writers = Writers(letters, WindowWriter(settings, letters=letters))
        return Consumer(replace(self.config, kafka=settings), source, writers, link)

    def consume(self, **changed: Any) -> Consumer:
        """A consumer in a thread of its own."""
        consumer = self.build(**changed)
        stop = threading.Event()

        def run() -> None:
            try:
                consumer.run(stop)
            except BaseException as error:
                self.failure = error

        thread = threading.Thread(target=run)
        thread.start()
        self.running.append((consumer, stop, thread))
        return consumer

    def stop(self) -> None:
        for _, stop, thread in self.running:
            stop.set()
            while thread.is_alive():
                for engine in self.engines:
                    engine.pump()
                thread.join(0.05)
        for engine in self.engines:
            engine.for_turns(3)  # what was sent last
        self.running.clear()

    def put(self, *values: Any, key: str | None = "AAPL", partition: int = 0) -> list[int]:
        futures = [
            self.producer.send(
                self.topic,
                key=key.encode() if key is not None else None,
                value=value if isinstance(value, bytes) else json.dumps(value).encode(),
                partition=partition,
            )
            for value in values
        ]
        return [future.get(timeout=PATIENCE_S).offset for future in futures]

    def committed(self, partition: int = 0) -> tuple[int, int] | None:
        found = self.viewer.committed(TopicPartition(self.topic, partition), metadata=True, timeout_ms=10_000)
        return None if found is None else (found.offset, json.loads(found.metadata)["floor"])

    def dead_letters(self, count: int) -> list[Any]:
        reader = KafkaConsumer(
            self.settings.dead_letter_topic,
            bootstrap_servers=self.settings.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=500,
        )
        found: list[Any] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            found.extend(record for records in reader.poll(500).values() for record in records)
        found.extend(record for records in reader.poll(300).values() for record in records)
        reader.close()
        assert len(found) == count
        return found

    def close(self) -> None:
        self.stop()
        for engine in self.engines:
            engine.server.close()
        self.producer.close(timeout=5)
        self.viewer.close(timeout_ms=5_000)
