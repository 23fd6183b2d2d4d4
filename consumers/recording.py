"""Recorded bars as whole series, to calibrate on: from a file that ``produce`` reads, or from a topic.

Both go through the rules of a live record. Of bars with equal times the last one counts, as in a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from consumers.files.reader import FeedBar, read_bars, sample_bars
from consumers.kafka.source import SourcePartition, SourceUnavailable, raw_record
from consumers.kafka.tail import TopicTail
from consumers.kafka.topics import require_topic
from consumers.wire.reasons import RawRecord
from consumers.wire.records import parse_records
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import Bar
from stream_engine.model.frame import BarArrays

POLL_MS = 500
CHUNK = 5_000
"""Records that are parsed together."""

Told = Callable[[int, int], None]
"""Records read so far, and how many there are."""


@dataclass(slots=True)
class Recording:
    """Bars by symbol, and how many bars were not taken, by reason."""

    refused: dict[str, int] = field(default_factory=dict)
    _bars: dict[str, dict[int, Bar]] = field(default_factory=dict)

    def add(self, raws: list[RawRecord]) -> None:
        """Raw records of a topic, in the order of their offsets."""
        for parsed in parse_records(raws):
            for letter in parsed.dead:
                self.refused[letter.reason] = self.refused.get(letter.reason, 0) + 1
            if parsed.record is not None:
                kept = self._bars.setdefault(parsed.record.key, {})
                kept.update((bar.time_us, bar) for bar in parsed.record.bars)

    def series(self) -> dict[str, BarArrays]:
        """The bars of each symbol, oldest first."""
        return {
            symbol: BarArrays.from_rows(bars[time] for time in sorted(bars))
            for symbol, bars in sorted(self._bars.items())
        }


def read_file(path: Path, symbol: str | None = None) -> Recording:
    """Raises FeedError, or OSError, where the file holds no bars or cannot be read."""
    return _recording(read_bars(path, symbol))


def read_sample() -> Recording:
    """The packaged daily bars of five equities. Raises FeedError where the optional package is absent."""
    return _recording(sample_bars())


def read_topic(settings: KafkaSettings, topic: str, told: Told = lambda done, total: None) -> Recording:
    """All bars that a topic holds now: from its beginning to the ends captured at the start.

    Raises TopicMissing, BrokerUnreachable or SourceUnavailable."""
    require_topic(settings, topic)
    recording = Recording()
    tail = TopicTail(settings, [topic], "calibrate")
    try:
        ends = tail.ends(tail.partitions)
        total, done = sum(ends.values()), 0
        while not tail.reached(ends):
            polled = tail.poll(POLL_MS)
            # What came after the start is left for another time, or a busy topic would never end.
            records = [
                record
                for record in polled
                if record.offset < ends[SourcePartition(record.topic, record.partition)]
            ]
            recording.add([raw_record(record) for record in records])
            if stopped := tail.stopped():
                raise SourceUnavailable("; ".join(f"{name} {reason}" for name, reason in stopped.items()))
            done += len(records)
            told(done, total)
    finally:
        tail.close(timeout_s=1.0)
    return recording


def _recording(bars: list[FeedBar]) -> Recording:
    recording = Recording()
    for chunk in _chunks(bars):
        recording.add(chunk)
    return recording


def _chunks(bars: Iterable[FeedBar]) -> Iterator[list[RawRecord]]:
    chunk: list[RawRecord] = []
    for offset, (symbol, bar) in enumerate(bars):
        chunk.append(RawRecord("", 0, offset, -1, symbol.encode(), msgspec.json.encode(bar)))
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    yield chunk
