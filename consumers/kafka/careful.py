"""A Kafka consumer that no batch can end: what it cannot read stops its partition there, or is passed by name.

kafka-python 3.0.12 raises out of ``poll`` whatever it meets in a batch, for all partitions together and without
naming one; and asked once more for the same batch, it loops for ever.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka import KafkaConsumer
from kafka.consumer.fetcher import ConsumerRecord, Fetcher
from kafka.errors import OffsetOutOfRangeError, UnsupportedCodecError

from consumers.kafka.salvage import BatchBytes, SalvagingRecords, Unread, described

log = logging.getLogger(__name__)

TRIES = 3
"""So often the broker has to give the same bytes before they are what the log holds, not a slip on their way."""
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 30.0


@dataclass(slots=True)
class Stop:
    """A partition stands at ``offset`` because of ``fault``; it is tried again at ``retry_at`` (monotonic)."""

    offset: int
    fault: str
    digest: bytes
    since: float
    tries: int = 1
    retry_at: float = 0.0

    @property
    def stays(self) -> bool:
        """It was tried often enough to be passed, and cannot be."""
        return self.tries >= TRIES

    def __str__(self) -> str:
        return f"stands at offset {self.offset}, which cannot be read: {self.fault}"


class CarefulConsumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python has no type marker
    """``poll`` raises nothing for what a partition holds or a broker says of it.

    A record that cannot be read is a record whose value is ``Unread``. A batch that cannot be, and of which the
    broker gives the same bytes ``TRIES`` times, is passed as one such record, with the batch's bytes and its last
    offset. Everything else stops the partition, paused until ``resume_due`` or the caller resumes it: a broker's
    error, a header that cannot be read; and with ``waits_for_codec`` a codec that is missing here, because nothing
    is wrong with the data then."""

    def __init__(self, waits_for_codec: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self._waits_for_codec = waits_for_codec
        self.stops: dict[Any, Stop] = {}
        """By (topic, partition)."""
        self.passed = 0
        """Batches that were passed."""
        self._fetcher.PartitionRecords = partial(_Records, self)
        self._fetcher._parse_fetched_data = partial(self._parse, self._fetcher._parse_fetched_data)

    def _parse(self, parse: Callable[[Any], Any], fetched: Any) -> Any:
        try:
            return parse(fetched)
        except OffsetOutOfRangeError:
            raise  # it names the partition, and is no fault of what is there
        except Exception as error:
            self._failed(fetched.topic_partition, fetched.fetched_offset, None, error)
            return None

    def held_back(self) -> set[Any]:
        """Stopped partitions whose next try is not due yet."""
        now = time.monotonic()
        return {tp for tp, stop in list(self.stops.items()) if stop.retry_at > now}

    def resume_due(self) -> None:
        """Read stopped partitions again whose time has come."""
        for tp in self.paused() & self.stops.keys() - self.held_back():
            self.resume(tp)

    def _read(self, tp: Any) -> None:
        stop = self.stops.pop(tp, None)
        if stop is not None:
            log.warning("%s/%d is read again from offset %d on", tp.topic, tp.partition, stop.offset)

    def _failed(self, tp: Any, offset: int, batch: BatchBytes | None, error: Exception) -> Any:
        """The record that stands for the batch, where it is passed; else None, and the partition is paused."""
        name, now = f"{tp.topic}/{tp.partition}", time.monotonic()
        fault = described(error)
        digest = hashlib.sha256(batch.raw).digest() if batch is not None else b""
        stop = self.stops.get(tp)
        if stop is None or stop.offset != offset or stop.digest != digest:
            stop = Stop(offset, fault, digest, now if stop is None else stop.since)
            log.error("%s %s; trying again", name, stop)
        else:
            stop.tries, stop.fault = stop.tries + 1, fault
        if batch is not None and stop.tries >= TRIES and self._may_pass(tp, offset, batch, error):
            self.stops.pop(tp, None)
            self.passed += 1
            through = f"offsets {offset} to {batch.last}" if batch.last > offset else f"offset {offset}"
            log.error("%s: %s cannot be read and is passed: %s", name, through, fault)
            return _marker(tp, batch, f"{fault} ({through}, the bytes of their batch)")
        stop.retry_at = now + min(RETRY_FIRST_S * 2 ** (stop.tries - 1), RETRY_MOST_S)
        self.stops[tp] = stop
        self._subscription.pause(tp)
        return None

    def _may_pass(self, tp: Any, offset: int, batch: BatchBytes, error: Exception) -> bool:
        if self._waits_for_codec and isinstance(error, UnsupportedCodecError):
            return False
        end = self._subscription.assignment[tp].highwater
        # A header may be what is damaged: an offset of another batch, or none of the log, leads nowhere.
        return offset <= batch.last and (end is None or batch.last < end)


class _Records(Fetcher.PartitionRecords):  # type: ignore[misc]  # the same
    """Fetched bytes of one partition, of which nothing is raised."""

    def __init__(self, consumer: CarefulConsumer, offset: int, tp: Any, records: Any, **settings: Any) -> None:
        self._consumer = consumer
        self._batches = SalvagingRecords(records._buffer)
        super().__init__(offset, tp, self._batches, **settings)

    def take(self, n: int | None = None) -> list[Any]:
        try:
            records: list[Any] = super().take(n)
        except Exception as error:
            tp = self.topic_partition
            marker = self._consumer._failed(tp, self.next_fetch_offset, self._batches.current, error)
            self.drain()  # what lies behind it is fetched again
            if marker is None:
                return []
            self.next_fetch_offset: int = marker.offset + 1
            return [marker]
        if records:
            self._consumer._read(self.topic_partition)
        return records


def _marker(tp: Any, batch: BatchBytes, fault: str) -> Any:
    value = Unread(batch.raw, fault)
    named = {"topic": tp.topic, "partition": tp.partition, "offset": batch.last, "value": value, "timestamp": -1}
    rest = {"leader_epoch": -1, "timestamp_type": 0, "headers": []}
    return ConsumerRecord(**dict.fromkeys(ConsumerRecord._fields))._replace(**named, **rest)
