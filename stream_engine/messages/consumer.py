"""What a consumer says to the engine, and hears from it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from stream_engine.messages.bounds import (
    MAX_COUNTERS,
    MAX_ID,
    MAX_ITEMS,
    MAX_PARTITIONS,
    MAX_TOPICS,
    ClockMs,
    Count,
    CounterName,
    Id,
    Name,
    NotNegative,
    Offset,
    OffsetBefore,
    PartitionName,
    PartitionNumber,
    Text,
    Topic,
)
from stream_engine.messages.events import AnswerChanged
from stream_engine.messages.records import Record, RecordCounts, Rejected, Window


class ConsumerHello(msgspec.Struct, frozen=True, tag=True):
    """First message of a consumer; answered by ``Welcome``."""

    topics: Annotated[tuple[Topic, ...], Meta(max_length=MAX_TOPICS)]


class ConsumerReport(msgspec.Struct, frozen=True, tag=True):
    """How the consumer is doing, about once a second: a sign of life, its lag by "topic/partition" (records in
    the log that the engine has not applied, so what is in flight is lag), and its counters for ``/metrics``.
    ``kafka_silent_since_ms`` (of the epoch) is since when no broker has answered it: the lag is then of before.
    ``partitions`` is how many each source topic has, where that is known. ``stopped``, by "topic/partition", are
    those of which nothing comes because the next record cannot be read, with the reason in words."""

    lag: Annotated[dict[PartitionName, Count], Meta(max_length=MAX_PARTITIONS)]
    counters: Annotated[dict[CounterName, NotNegative], Meta(max_length=MAX_COUNTERS)]
    records: Annotated[dict[PartitionName, RecordCounts], Meta(max_length=MAX_PARTITIONS)] = {}
    kafka_silent_since_ms: ClockMs | None = None
    partitions: Annotated[dict[Topic, PartitionNumber], Meta(max_length=MAX_TOPICS)] = {}
    stopped: Annotated[dict[PartitionName, Text], Meta(max_length=MAX_PARTITIONS)] = {}


class Assign(msgspec.Struct, frozen=True, tag=True):
    """A partition now belongs to this consumer. Records from ``start`` up to (not including) ``live_from`` are
    a replay: they refill windows without running the model and emit no events. Sessions are served once
    everything before ``serve_from`` is applied: the end of the log at the assignment, because an earlier life
    of the engine may have answered from there. ``generation`` grows with each assignment and fences what is
    still in flight from earlier ones. ``incomplete`` says that records which the windows need have aged out of
    the log."""

    topic: Topic
    partition: PartitionNumber
    generation: Count
    start: Offset
    live_from: Offset
    incomplete: bool = False
    serve_from: Offset = 0


class Revoke(msgspec.Struct, frozen=True, tag=True):
    """The partition was taken away: its sessions stop being served."""

    topic: Topic
    partition: PartitionNumber
    generation: Count


class Restore(msgspec.Struct, frozen=True, tag=True):
    """Windows of a newly assigned partition, sent after ``Assign`` and before its first batch; later those that
    ``Wake`` asks for. One of these without bars is not in its topic any more, or cannot be read."""

    topic: Topic
    partition: PartitionNumber
    generation: Count
    windows: Annotated[tuple[Window, ...], Meta(max_length=MAX_ITEMS)]


class Sleeper(msgspec.Struct, frozen=True, array_like=True):
    """A session that sleeps as of record ``offset``: its window is the message ``at`` of the windows topic, in the
    partition of the session's own number; -1 where that was not written."""

    session: Id
    offset: Offset
    at: OffsetBefore


class Asleep(msgspec.Struct, frozen=True, tag=True):
    """Sessions whose windows are in their topic as those of sleepers: after ``Assign`` those that slept before,
    later those of a ``PutToSleep`` once the broker has confirmed them."""

    topic: Topic
    partition: PartitionNumber
    generation: Count
    sleepers: Annotated[tuple[Sleeper, ...], Meta(max_length=MAX_ITEMS)]


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Consecutive records of one partition, ``(follows, last]`` in offsets.

    ``follows`` is the last offset of the previous batch (``start - 1`` for the first): an engine that has
    not taken that one refuses the batch, so a lost message is never a silent hole. Offsets inside may have
    gaps (transaction markers, compaction). ``records`` holds only the good ones; ``consumed`` counts all.
    """

    topic: Topic
    partition: PartitionNumber
    generation: Count
    follows: OffsetBefore
    last: OffsetBefore
    consumed: Count
    records: Annotated[tuple[Record, ...], Meta(max_length=MAX_ITEMS)]

    def __post_init__(self) -> None:
        before = self.follows
        for record in self.records:
            if record.offset <= before:
                raise ValueError("the records of a batch follow one another, and the batch before it")
            before = record.offset
        if before > self.last or self.last <= self.follows or self.consumed < len(self.records):
            raise ValueError("a batch ends with or after its last record, and counts them all")


class EvaluationsWritten(msgspec.Struct, frozen=True, tag=True):
    """The answers topic holds the ``Evaluations`` of the partition up to ``number``."""

    topic: Topic
    partition: PartitionNumber
    generation: Count
    number: Count


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """``boot_id`` names this life of the engine: on a new one a consumer treats all its partitions as
    newly assigned. ``credits`` is the number of records that may be in flight (unacknowledged). ``link`` is the
    connection by which the engine knows the receiver: on another one than before, what was on its way is lost."""

    boot_id: Name
    credits: Count
    link: Annotated[bytes, Meta(max_length=MAX_ID)] = b""


class Ack(msgspec.Struct, frozen=True, tag=True):
    """Everything up to ``last`` is applied. ``floor`` is the oldest offset that any live window of the
    partition still needs: it goes into the offset commit's metadata and is where a rebuild starts.
    ``late`` and ``conflicts`` are records that the engine did not apply, with the reason, for the
    dead-letter topic; the consumer still holds their bytes until the acknowledgement. ``windows`` must be
    written before ``floor`` is committed: it counts on them. ``applied``, ``duplicates`` and ``late`` count the
    live records: each is one of them, rejected with another reason, or was not in the batch's ``records``."""

    boot_id: Name
    topic: Topic
    partition: PartitionNumber
    generation: Count
    last: OffsetBefore
    floor: Offset
    rejected: Annotated[tuple[Rejected, ...], Meta(max_length=MAX_ITEMS)] = ()
    windows: Annotated[tuple[Window, ...], Meta(max_length=MAX_ITEMS)] = ()
    applied: Count = 0
    duplicates: Count = 0
    late: Count = 0


class PutToSleep(msgspec.Struct, frozen=True, tag=True):
    """Write these windows, of sessions that nobody feeds or asks; answered by ``Asleep``."""

    boot_id: Name
    topic: Topic
    partition: PartitionNumber
    generation: Count
    windows: Annotated[tuple[Window, ...], Meta(max_length=MAX_ITEMS)]


class Wake(msgspec.Struct, frozen=True, tag=True):
    """The windows of these sessions are needed; answered by ``Restore``."""

    boot_id: Name
    topic: Topic
    partition: PartitionNumber
    generation: Count
    sleepers: Annotated[tuple[Sleeper, ...], Meta(max_length=MAX_ITEMS)]


class AnswerGone(msgspec.Struct, frozen=True, tag=True):
    """The query is deleted, or does not cover the session any more: so is its answer in the answers topic."""

    session: Id
    query: Id
    topic: Topic
    partition: PartitionNumber
    offset: Offset


class Evaluations(msgspec.Struct, frozen=True, tag=True):
    """Answers of standing queries for the answers topic, in order; sent before the ``Ack`` that covers them, whose
    offsets may be committed once they are written. ``number`` is that of the last one."""

    boot_id: Name
    topic: Topic
    partition: PartitionNumber
    generation: Count
    number: Count
    answers: Annotated[tuple[AnswerChanged | AnswerGone, ...], Meta(max_length=MAX_ITEMS)]

    def __post_init__(self) -> None:
        source = self.topic, self.partition
        if any(
            (evaluated.topic, evaluated.partition) != source or evaluated.offset is None
            for evaluated in self.answers
        ):
            raise ValueError("evaluations are of records of their own partition")


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A batch out of order or of a past generation; nothing of it was applied. ``expected_follows`` is
    the last offset the engine has taken (None where it does not own the partition): reassign."""

    boot_id: Name
    topic: Topic
    partition: PartitionNumber
    generation: Count
    expected_follows: OffsetBefore | None
    reason: Text
