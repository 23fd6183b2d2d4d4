"""What the engine tells everyone: commits, standing-query answers, and a gate that risk control has moved."""

from __future__ import annotations

import msgspec


class Committed(msgspec.Struct, frozen=True, tag=True):
    """A session's version moved."""

    session: str
    session_version: int
    bars: int
    topic: str | None
    partition: int | None
    offset: int | None
    event_time: str | None


class AnswerChanged(msgspec.Struct, frozen=True, tag=True):
    """A standing query's answer changed (or, with ``on: commit``, was evaluated). ``initial`` marks a first
    evaluation; ``previous`` is then None."""

    session: str
    query: str
    question: str
    answer: str
    previous: str | None
    initial: bool
    class_: str = msgspec.field(name="class")
    gap: float
    confidence: float | None
    session_version: int
    topic: str | None
    partition: int | None
    offset: int | None
    event_time: str | None


class RiskChanged(msgspec.Struct, frozen=True, tag=True):
    """Checked fast answers of a class differ too often: its tau was raised, or its fast path closed. ``tau`` and
    ``open`` apply from now on; counts, bounds and ``evidence`` are those that led here, under ``tau_before``."""

    class_: str = msgspec.field(name="class")
    state: str
    previous: str
    tau: float
    tau_before: float
    open: bool
    budget: float
    checks: int
    false_accepts: int
    lower: float
    upper: float
    evidence: float
    threshold: float


Event = Committed | AnswerChanged | RiskChanged


class EventEnvelope(msgspec.Struct, frozen=True, array_like=True):
    """What the events socket carries: a sequence that grows by one per event within one boot."""

    boot_id: str
    sequence: int
    event: Event
