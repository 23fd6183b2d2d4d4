"""What the engine tells everyone: commits, standing-query answers (or why there is none), and a moved gate."""

from __future__ import annotations

import msgspec

from stream_engine.messages.bounds import (
    Count,
    Finite,
    Gap,
    Id,
    Name,
    Offset,
    PartitionNumber,
    Question,
    Share,
    Topic,
)


class Committed(msgspec.Struct, frozen=True, tag=True):
    """A session's version moved."""

    session: Id
    session_version: Count
    bars: Count
    topic: Topic | None
    partition: PartitionNumber | None
    offset: Offset | None
    event_time: Name | None


class AnswerChanged(msgspec.Struct, frozen=True, tag=True):
    """A standing query's answer changed (or, with ``on: commit``, was evaluated). ``initial`` marks a first
    evaluation; ``previous`` is then None."""

    session: Id
    query: Id
    question: Question
    answer: Name
    previous: Name | None
    initial: bool
    class_: Name = msgspec.field(name="class")
    gap: Gap
    confidence: Share | None
    session_version: Count
    topic: Topic | None
    partition: PartitionNumber | None
    offset: Offset | None
    event_time: Name | None


class NotEvaluated(msgspec.Struct, frozen=True, tag=True):
    """A standing query that asked for every commit was not evaluated at this one: its question has no room beside
    the session's data (``no_room``), or a turn came before its evaluation (``overtaken``)."""

    session: Id
    query: Id
    question: Question
    reason: Name
    session_version: Count
    topic: Topic | None
    partition: PartitionNumber | None
    offset: Offset | None
    event_time: Name | None


class RiskChanged(msgspec.Struct, frozen=True, tag=True):
    """Checked fast answers of a class differ too often: its tau was raised, or its fast path closed. ``tau`` and
    ``open`` apply from now on; counts, bounds and ``evidence`` are those that led here, under ``tau_before``."""

    class_: Name = msgspec.field(name="class")
    state: Name
    previous: Name
    tau: Finite
    tau_before: Finite
    open: bool
    budget: Share
    checks: Count
    false_accepts: Count
    lower: Share
    upper: Share
    evidence: Finite
    threshold: Finite


Event = Committed | AnswerChanged | NotEvaluated | RiskChanged


class EventEnvelope(msgspec.Struct, frozen=True, array_like=True):
    """What the events socket carries: a sequence that grows by one per event within one boot."""

    boot_id: Name
    sequence: Count
    event: Event
