"""Whole topics from their beginning, and on: without a group, in one thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError

from consumers.kafka.careful import CarefulConsumer
from consumers.kafka.client import client_options
from consumers.kafka.source import LOOKUP_TIMEOUT_MS, RECONNECT_BACKOFF_MS, SourcePartition, SourceUnavailable
from stream_engine.config.kafka import KafkaSettings


class TopicTail:
    """Every partition that the topics have now. They must exist."""

    def __init__(self, settings: KafkaSettings, topics: Iterable[str], client: str) -> None:
        self._consumer = CarefulConsumer(
            **client_options(settings),
            client_id=f"{settings.group_id}-{client}",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            reconnect_backoff_max_ms=RECONNECT_BACKOFF_MS,
        )
        self.partitions = [partition for topic in topics for partition in self.partitions_of(topic)]
        self._consumer.assign([TopicPartition(*partition) for partition in self.partitions])
        self._consumer.seek_to_beginning()

    def partitions_of(self, topic: str) -> list[SourcePartition]:
        """Those that a topic has. It must exist, or the broker would make one up."""
        return [
            SourcePartition(topic, number) for number in sorted(self._consumer.partitions_for_topic(topic) or ())
        ]

    def ends(self, partitions: Iterable[SourcePartition]) -> dict[SourcePartition, int]:
        """The offset after the last, of partitions that exist. Raises SourceUnavailable."""
        asked = [TopicPartition(*partition) for partition in partitions]
        try:
            found = self._consumer.end_offsets(asked, timeout_ms=LOOKUP_TIMEOUT_MS) if asked else {}
        except KafkaError as error:
            raise SourceUnavailable(f"end offsets: {type(error).__name__}: {error}") from error
        return {SourcePartition(*tp): end for tp, end in found.items()}

    def poll(self, timeout_ms: int) -> list[Any]:
        """Records, in offset order within each partition; the value of what cannot be read is ``Unread``. Raises
        KafkaError."""
        self._consumer.resume_due()
        polled = self._consumer.poll(timeout_ms=timeout_ms)
        return [record for records in polled.values() for record in records]

    def stopped(self) -> dict[SourcePartition, str]:
        """Partitions that cannot be read any further, and why."""
        return {SourcePartition(*tp): str(stop) for tp, stop in self._consumer.stops.items() if stop.stays}

    def reached(self, ends: Mapping[SourcePartition, int]) -> bool:
        """Whether everything before ``ends`` was returned by ``poll``."""
        return all((self._position(partition) or 0) >= end for partition, end in ends.items())

    def _position(self, partition: SourcePartition) -> int | None:
        try:
            position: int | None = self._consumer.position(TopicPartition(*partition), timeout_ms=0)
        except KafkaError:  # not known yet
            return None
        return position

    def close(self, timeout_s: float) -> None:
        self._consumer.close(timeout_ms=int(timeout_s * 1000))
