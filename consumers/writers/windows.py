"""The compacted topic of windows: written before a floor counts on them, read when a partition starts.

A window lies in the partition that has the number of its session's own, under the key ``<topic>|<session>``; the
value is msgpack, because volumes may be NaN. A null value is a deletion. Open bars of quiet trades lie beside
them, under ``<topic>/open|<session>``: no topic's name holds a slash.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from kafka import TopicPartition
from kafka.errors import KafkaError

from consumers.kafka.careful import CarefulConsumer
from consumers.kafka.client import client_options
from consumers.kafka.producer import open_producer
from consumers.kafka.salvage import Unread
from consumers.kafka.source import SourcePartition, SourceUnavailable
from consumers.wire.open_bars import OpenBar
from consumers.wire.parts import MESSAGE_BARS, split
from consumers.writers.dead_letter import DeadLetterWriter
from consumers.writers.spool import DELIVERY_TIMEOUT_MS, Confirmation, Order, Rules, Spool, Write
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import Sleeper, Window
from stream_engine.messages.bounds import MAX_ID, UNREADABLE
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

LOOKUP_TIMEOUT_MS = 5_000
READ_POLL_MS = 500
NO_PROGRESS_S = 30.0
OF_NO_RECORD = -1

Stored = Window | Sleeper | OpenBar
"""What lies under a key, or where."""

_encode = msgspec.msgpack.Encoder().encode
_decode_window = msgspec.msgpack.Decoder(Window).decode
_decode_open_bar = msgspec.msgpack.Decoder(OpenBar).decode


class WindowsTopicTooSmall(RuntimeError):
    """A partition of the source has no counterpart in the windows topic; the message says what to do."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What is to stand under ``key``, in the partition of ``source``'s number; None is a deletion. It tells of
    records up to ``as_of``."""

    source: SourcePartition
    key: bytes
    value: bytes | None
    as_of: int


class _WindowRules(Rules[_Stored]):
    """After a restart, what a window tells of is taken for applied, and none of it is rejected again: so a window
    waits until the engine has ``acknowledged`` all of that, and ``letters`` has its dead letters written."""

    what = "window"
    order = Order.NEWEST

    def __init__(self, topic: str, letters: DeadLetterWriter | None, skipped: Skipped) -> None:
        self._topic = topic
        self._letters = letters
        self._skipped = skipped
        self.acknowledged: dict[SourcePartition, int] = {}

    def topic(self, content: _Stored) -> str:
        return self._topic

    def message(self, content: _Stored) -> dict[str, Any]:
        return {"key": content.key, "value": content.value, "partition": content.source.partition}

    def shortened(self, content: _Stored, error: KafkaError) -> _Stored:
        """An open bar that remembers fewer ids; else a deletion, because an older value would pass for what the
        floor counts on; that one is tried until the broker takes it."""
        where = f"{content.key!r}, partition {content.source.partition}"
        is_open = content.key.partition(b"|")[0].endswith(b"/open")
        bar = _decode_open_bar(content.value) if is_open and content.value is not None else None
        if bar is not None and bar.ids:
            bar.ids = bar.ids[len(bar.ids) // 2 + 1 :]
            self._skipped.note("open_bar_shortened", f"{where} forgets older trades' ids: {error}")
            return replace(content, value=_encode(bar))
        self._skipped.note("window_too_large", f"{where} begins anew at a restart: {error}")
        return replace(content, value=None)

    def stands(self, content: _Stored) -> bool:
        return content.value is not None

    def may_go(self, content: _Stored) -> bool:
        pending = self._letters.first_pending(*content.source) if self._letters is not None else None
        acknowledged = self.acknowledged.get(content.source, -1)
        return content.as_of <= acknowledged and (pending is None or pending > content.as_of)


class WindowWriter:
    """Writes windows without waiting, and retries until each, or a newer one of its session, is confirmed. One
    thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        make_producer: Callable[[], Any] | None = None,
        letters: DeadLetterWriter | None = None,
        skipped: Skipped | None = None,
    ) -> None:
        """The topic must exist. Raises KafkaTimeoutError where no broker tells about it."""
        self._rules = _WindowRules(settings.windows_topic, letters, skipped or Skipped(log))
        self.spool = Spool(self._rules, make_producer or (lambda: _open(settings)))

    def write(self, source: SourcePartition, window: Window, generation: int, offset: int) -> None:
        """Write the window, or the deletion; its confirmation names the generation and the offset, and the session
        where that is to sleep on it."""
        value = _encode(window) if window.bars else None
        stored = _Stored(source, window_key(source.topic, window.session), value, window.offset)
        sleeper = window.session if window.asleep else ""
        self._put(stored, [Confirmation(*source, generation, offset, session=sleeper)])

    def save(self, source: SourcePartition, session: str, bar: OpenBar, generation: int, offset: int) -> None:
        """Write an open bar as it is now."""
        stored = _Stored(source, _open_key(source.topic, session), _encode(bar), bar.last)
        self._put(stored, [Confirmation(*source, generation, offset)])

    def delete(self, source: SourcePartition, key: bytes) -> None:
        """Delete what an earlier topic left under a key. No record waits for it: see ``deleting``."""
        self._put(_Stored(source, key, None, OF_NO_RECORD), [])

    def deleting(self, source: SourcePartition) -> bool:
        """Some of that is not confirmed by the broker yet."""
        contents = (write.content for write in self.spool if write.source == source)
        return any(content is not None and content.as_of == OF_NO_RECORD for content in contents)

    def _put(self, stored: _Stored, tickets: list[Confirmation]) -> None:
        self.spool.add(Write(stored.source, (stored.source.partition, stored.key), stored, tickets))

    def acknowledged(self, source: SourcePartition, last: int) -> None:
        """The engine has said what became of the records up to ``last``."""
        self._rules.acknowledged[source] = last


def _open(settings: KafkaSettings) -> Any:
    return open_producer(settings, "windows", [settings.windows_topic], DELIVERY_TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """What the topic holds for one partition: windows, where those of sleepers are, open bars by session.
    ``stale`` are keys of what lies behind the end of the source: it is of an earlier topic of that name."""

    windows: tuple[Window, ...] = ()
    sleepers: tuple[Sleeper, ...] = ()
    open_bars: Mapping[str, OpenBar] = field(default_factory=dict)
    stale: tuple[bytes, ...] = ()

    def all_stale(self, topic: str) -> StoredWindows:
        """The same, with nothing of it to be used."""
        sessions = [stored.session for stored in self.windows] + [stored.session for stored in self.sleepers]
        windows = (window_key(topic, session) for session in sessions)
        open_bars = (_open_key(topic, session) for session in self.open_bars)
        return StoredWindows(stale=(*self.stale, *windows, *open_bars))


def read_windows(settings: KafkaSettings, source: SourcePartition, skipped: Skipped) -> StoredWindows:
    """The windows of one partition, up to the topic's end as of now. Others may write to that topic too: what is
    no window of ours is ``skipped``.

    Raises SourceUnavailable, and WindowsTopicTooSmall."""
    try:
        consumer = windows_reader(settings)
        try:
            return _read(consumer, settings.windows_topic, source, skipped)
        finally:
            consumer.close(timeout_ms=LOOKUP_TIMEOUT_MS)
    except KafkaError as error:
        raise SourceUnavailable(f"windows of {source}: {type(error).__name__}: {error}") from error


def windows_reader(settings: KafkaSettings, **options: Any) -> CarefulConsumer:
    """Raises KafkaError where no broker answers."""
    return CarefulConsumer(
        **client_options(settings),
        client_id=f"{settings.group_id}-windows",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **options,
    )


def _read(consumer: Any, topic: str, source: SourcePartition, skipped: Skipped) -> StoredWindows:
    known = consumer.partitions_for_topic(topic) or set()
    if known and source.partition not in known:
        raise WindowsTopicTooSmall(
            f"topic {topic} has {len(known)} partitions, and {source} needs one of its number: give it as many as "
            f"{source.topic} has (kafka-topics --alter --topic {topic} --partitions N); its messages stay valid"
        )
    tp = TopicPartition(topic, source.partition)
    consumer.assign([tp])
    end = consumer.end_offsets([tp], timeout_ms=LOOKUP_TIMEOUT_MS)[tp]
    consumer.seek_to_beginning(tp)
    found: dict[bytes, Stored] = {}
    moved = time.monotonic()
    # The position is None where the broker does not answer in time.
    while (consumer.position(tp, timeout_ms=LOOKUP_TIMEOUT_MS) or 0) < end:
        consumer.resume_due()
        polled = consumer.poll(timeout_ms=READ_POLL_MS)
        if any(stop.stays for stop in consumer.stops.values()):
            raise SourceUnavailable(f"windows of {source}: {topic}/{source.partition} {consumer.stops[tp]}")
        if polled:
            moved = time.monotonic()
        elif time.monotonic() - moved > NO_PROGRESS_S:
            raise SourceUnavailable(f"windows of {source}: no answer for {NO_PROGRESS_S:.0f} s")
        for record in (record for records in polled.values() for record in records):
            if isinstance(record.value, Unread):
                skipped.note("window_unreadable", f"up to offset {record.offset}: {record.value.fault}")
                continue
            enter(found, source.topic, record.key or b"", record.value, skipped, record.offset)
    origin = TopicPartition(*source)
    length = consumer.end_offsets([origin], timeout_ms=LOOKUP_TIMEOUT_MS)[origin]
    usable = {key: stored for key, stored in found.items() if _as_of(stored) < length}
    return StoredWindows(
        tuple(stored for stored in usable.values() if isinstance(stored, Window)),
        tuple(stored for stored in usable.values() if isinstance(stored, Sleeper)),
        {_session(key): stored for key, stored in usable.items() if isinstance(stored, OpenBar)},
        tuple(key for key in found if key not in usable),
    )


def enter(
    found: dict[bytes, Stored], topic: str, key: bytes, value: bytes | None, skipped: Skipped, at: int
) -> None:
    """Record ``at`` of the topic into what was ``found`` under the keys of a source; of a window that is slept on,
    where it is."""
    is_window = key.startswith(window_key(topic, ""))
    if not is_window and not key.startswith(_open_key(topic, "")):
        return  # of another source
    if value is None:
        found.pop(key, None)
        return
    try:
        stored: Stored = window_of(key, value) if is_window else _open_bar_of(key, value)
    except (*UNREADABLE, ValueError) as error:
        skipped.note("window_unreadable", f"under {key[:MAX_ID]!r}: {error}")
        return
    if isinstance(stored, Window) and stored.asleep:
        stored = Sleeper(stored.session, stored.offset, at)
    before = found.get(key)
    # A message that an earlier owner had on its way may come after the newer stored.
    if before is None or _as_of(before) <= _as_of(stored):
        found[key] = stored


def window_of(key: bytes, value: bytes) -> Window:
    """Raises ValueError, and what decoding raises."""
    window = _decode_window(value)
    if window.session != _session(key):
        raise ValueError(f"it is of session {window.session!r}")
    if not window.bars:
        raise ValueError("it has no bars")
    bars = (stored_bar.bar for stored_bar in window.bars)
    if any(not bar.low <= min(bar.open, bar.close) <= max(bar.open, bar.close) <= bar.high for bar in bars):
        raise ValueError("a bar's open or close lies outside its low and high")
    return window


def _open_bar_of(key: bytes, value: bytes) -> OpenBar:
    """Raises ValueError, and what decoding raises."""
    _session(key)
    return _decode_open_bar(value)


def _session(key: bytes) -> str:
    session = key.partition(b"|")[2].decode()
    if not 0 < len(session) <= MAX_ID:
        raise ValueError(f"a session's id has 1 to {MAX_ID} characters")
    return session


def _as_of(stored: Stored) -> int:
    """The newest record that is part of it."""
    return stored.last if isinstance(stored, OpenBar) else stored.offset


def window_key(topic: str, session: str) -> bytes:
    return f"{topic}|{session}".encode()


def _open_key(topic: str, session: str) -> bytes:
    return f"{topic}/open|{session}".encode()


class WindowLoad:
    """``read_windows`` beside the poll thread, which goes on polling meanwhile."""

    def __init__(self, settings: KafkaSettings, source: SourcePartition, skipped: Skipped) -> None:
        self._outcome: StoredWindows | Exception | None = None

        def read() -> None:
            try:
                self._outcome = read_windows(settings, source, skipped)
            except Exception as error:  # the poll thread raises it, or tries again
                self._outcome = error

        threading.Thread(target=read, name=f"windows-{source}", daemon=True).start()

    def result(self) -> StoredWindows | None:
        """None while it is being read. Raises what reading raised."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def in_parts(windows: Iterable[Window], bars: int = MESSAGE_BARS) -> list[tuple[Window, ...]]:
    """Windows in messages of a bounded size: so many bars, or one window."""
    return [tuple(part) for part in split(windows, lambda window: len(window.bars), bars)]
