"""Single windows of the compacted topic by their numbers, read beside the poll thread."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.errors import KafkaError

from consumers.kafka.salvage import Unread
from consumers.kafka.source import SourcePartition, SourceUnavailable
from consumers.writers.windows import (
    LOOKUP_TIMEOUT_MS,
    NO_PROGRESS_S,
    READ_POLL_MS,
    window_key,
    window_of,
    windows_reader,
)
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import Sleeper, Window
from stream_engine.messages.bounds import UNREADABLE
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

RETRY_S = 1.0
NEAR = 100
"""Messages that are rather read past than sought over."""
FETCH_BYTES = 128 * 1024
"""Of one fetch: some thirty windows. A larger one comes alone."""


class Lookup(NamedTuple):
    """Windows of one partition, asked for in one generation; those of nobody are not in their topic any more, or
    cannot be read."""

    source: SourcePartition
    generation: int
    windows: tuple[Window, ...]


class _Wanted(NamedTuple):
    source: SourcePartition
    generation: int
    sleepers: tuple[Sleeper, ...]


class WindowLookup:
    """Reads in a thread of its own, from the first question on. A broker that does not answer is asked again."""

    def __init__(self, settings: KafkaSettings, skipped: Skipped) -> None:
        self._settings = settings
        self._skipped = skipped
        self._wanted: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[Lookup] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._newest: dict[SourcePartition, int] = {}

    def want(self, source: SourcePartition, generation: int, sleepers: Sequence[Sleeper]) -> None:
        """They come back by ``found``, in one piece. What an earlier generation of the partition wants is over."""
        self._newest[source] = generation
        self._wanted.put(_Wanted(source, generation, tuple(sleepers)))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="window-lookup", daemon=True)
            self._thread.start()

    def found(self) -> Iterator[Lookup]:
        """What was read since the last call."""
        while not self._found.empty():
            yield self._found.get()

    def close(self) -> None:
        """Whatever is still wanted is not read any more."""
        self._stop.set()
        self._wanted.put(None)
        if self._thread is not None:
            self._thread.join(LOOKUP_TIMEOUT_MS / 1000)

    def _run(self) -> None:
        reader: Any = None
        while (wanted := self._wanted.get()) is not None:
            while not self._stop.is_set() and self._newest[wanted.source] == wanted.generation:
                try:
                    reader = reader or windows_reader(self._settings, max_partition_fetch_bytes=FETCH_BYTES)
                    self._found.put(Lookup(*wanted[:2], self._read(reader, wanted)))
                    break
                except (KafkaError, SourceUnavailable) as error:
                    log.warning("%d sleepers of %s wait: %s", len(wanted.sleepers), wanted.source, error)
                    self._stop.wait(RETRY_S)
        if reader is not None:
            reader.close(timeout_ms=LOOKUP_TIMEOUT_MS)

    def _read(self, reader: Any, wanted: _Wanted) -> tuple[Window, ...]:
        """Raises KafkaError, SourceUnavailable."""
        tp = TopicPartition(self._settings.windows_topic, wanted.source.partition)
        keys = {window_key(wanted.source.topic, sleeper.session): sleeper for sleeper in wanted.sleepers}
        reader.assign([tp])
        end = reader.end_offsets([tp], timeout_ms=LOOKUP_TIMEOUT_MS)[tp]
        found: dict[bytes, Window] = {}
        due = deque(sorted({sleeper.at for sleeper in wanted.sleepers if sleeper.at < end}))
        position = -NEAR - 1
        while due:
            if due[0] - position > NEAR:
                position = due[0]
                reader.seek(tp, position)
            position = self._collect(reader, tp, position, keys, found)
            while due and due[0] < position:
                due.popleft()
        moved = [sleeper.at for key, sleeper in keys.items() if key not in found]
        if moved:
            # Compaction takes a message where a newer one has its key: that lies further on.
            position = min(moved)
            reader.seek(tp, min(position, end))
            while position < end:
                position = self._collect(reader, tp, position, keys, found)
        nothing = (key for key in keys if key not in found)
        return (*found.values(), *(_no_window(keys[key].session) for key in nothing))

    def _collect(
        self,
        reader: Any,
        tp: TopicPartition,
        position: int,
        keys: dict[bytes, Sleeper],
        found: dict[bytes, Window],
    ) -> int:
        """The messages that come next from ``position`` on; where they end."""
        moved = time.monotonic()
        while True:
            reader.resume_due()
            records = reader.poll(timeout_ms=READ_POLL_MS).get(tp, [])
            for record in records:
                self._enter(record, keys, found)
            reached = records[-1].offset + 1 if records else reader.position(tp, timeout_ms=LOOKUP_TIMEOUT_MS)
            if reached is not None and reached > position:
                return int(reached)
            stop = reader.stops.get(tp)
            if self._stop.is_set() or (stop is not None and stop.stays):
                raise SourceUnavailable(f"{tp.topic}/{tp.partition} {stop}")
            if time.monotonic() - moved > NO_PROGRESS_S:
                raise SourceUnavailable(f"no answer for {NO_PROGRESS_S:.0f} s")

    def _enter(self, record: Any, keys: dict[bytes, Sleeper], found: dict[bytes, Window]) -> None:
        key = record.key or b""
        if isinstance(record.value, Unread):
            self._skipped.note("window_unreadable", f"up to offset {record.offset}: {record.value.fault}")
        elif key not in keys or record.offset < keys[key].at:
            return  # in passing
        elif record.value is None:
            found.pop(key, None)
        else:
            try:
                window = window_of(key, record.value)
            except (*UNREADABLE, ValueError) as error:
                self._skipped.note("window_unreadable", f"under {key[:256]!r}: {error}")
                return
            if key not in found or found[key].offset <= window.offset:
                found[key] = window


def _no_window(session: str) -> Window:
    return Window(session=session, offset=-1, timestamp_ms=0, swaps=0, units=None, bars=())
