"""Batches of the log as kafka-python decodes them, except that one unreadable record does not end its batch.

kafka-python 3.0.12 refuses a whole batch for a record that has a header whose name is not UTF-8 (Java's client
reads it), or that does not fill its own frame. Where the frame can be read, its neighbours can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import decode_varint

from consumers.kafka.unpack import unpack

FAULT_CHARACTERS = 300


class Unread(bytes):
    """The value of a record that could not be read: its own where that much could be, else the bytes in which the
    log holds it. ``fault`` says why."""

    fault: str

    def __new__(cls, raw: bytes, fault: str) -> Unread:
        self = super().__new__(cls, raw)
        self.fault = fault
        return self


def described(error: BaseException) -> str:
    """What was raised, in a bounded number of words: kafka-python's may repeat the bytes that it met."""
    return f"{type(error).__name__}: {error}"[:FAULT_CHARACTERS]


@dataclass(frozen=True, slots=True)
class BatchBytes:
    """A batch as the broker sent it; ``last`` is the offset that its header names as its last one."""

    raw: bytes
    last: int


class SalvagingRecords(MemoryRecords):  # type: ignore[misc]  # kafka-python has no type marker
    """``current`` is the batch that is being read; None where its header cannot be."""

    current: BatchBytes | None = None

    def next_batch(self) -> Any:
        self.current = None
        raw = self._next_slice
        batch = super().next_batch()
        if batch is None:
            return None
        if not isinstance(batch, DefaultRecordBatch):  # of the formats before 2: the offset is that of its last
            self.current = BatchBytes(bytes(raw), batch.base_offset)
            return batch
        self.current = BatchBytes(bytes(raw), batch.last_offset)
        return _SalvagingBatch(raw)


class _SalvagingBatch(DefaultRecordBatch):  # type: ignore[misc]  # the same
    _buffer: Any
    _pos: int
    _decompressed: bool

    def _maybe_uncompress(self) -> None:
        codec = self.compression_type
        if not self._decompressed and codec != self.CODEC_NONE:
            self._assert_has_codec(codec)
            self._buffer = bytearray(unpack(codec, bytes(memoryview(self._buffer)[self._pos :])))
            self._pos = 0
        self._decompressed = True

    def __next__(self) -> Any:
        start = self._pos
        try:
            return super().__next__()
        except CorruptRecordError as error:
            if self.is_control_batch or self._next_record_index >= self._num_records:
                raise
            found = self._salvage(start, described(error))
            if found is None:
                raise
            return found

    next = __next__

    def _salvage(self, start: int, fault: str) -> DefaultRecord | None:
        """The record as far as it can be read, None where it cannot be told from the next one."""
        buffer = self._buffer
        try:
            length, at = decode_varint(buffer, start)
            end = at + length
            if length <= 0 or end > len(buffer):
                return None
            frame = bytes(buffer[at:end])
            _, at = decode_varint(buffer, at)  # attributes
            delay, at = decode_varint(buffer, at)
            place, at = decode_varint(buffer, at)
        except (ValueError, IndexError):
            return None
        if not 0 <= place <= self.last_offset_delta:
            return None
        key, value = _key_and_value(buffer, at, end)
        self._pos = end
        self._next_record_index += 1
        stamp = self.max_timestamp if self.timestamp_type == self.LOG_APPEND_TIME else self.first_timestamp + delay
        unread = Unread(frame if value is None else value, fault)
        return DefaultRecord(length, self.base_offset + place, stamp, self.timestamp_type, key, unread, [])


def _key_and_value(buffer: bytearray, at: int, end: int) -> tuple[bytes | None, bytes | None]:
    """What lies before the headers; (None, None) where that is not all within the frame."""
    found: list[bytes | None] = []
    try:
        for _ in range(2):
            length, at = decode_varint(buffer, at)
            stop = at + max(0, length)
            if stop > end:
                return None, None
            found.append(None if length < 0 else bytes(buffer[at:stop]))
            at = stop
    except (ValueError, IndexError):
        return None, None
    return found[0], found[1] or b""
