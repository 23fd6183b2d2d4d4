"""What the engine tells everyone: commits and standing-query answers."""

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


Event = Committed | AnswerChanged


class EventEnvelope(msgspec.Struct, frozen=True, array_like=True):
    """What the events socket carries: a sequence that grows by one per event within one boot."""

    boot_id: str
    sequence: int
    event: Event
