"""An answer from what was found and the state that it rests on: every door and every path fills it in here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from stream_engine.decision.freshness import age_of
from stream_engine.decision.ready import Evidence, ReadyDistribution, StateFlag
from stream_engine.messages import Answer, PathTaken, Query
from stream_engine.util.timestamps import event_time


@dataclass(frozen=True, slots=True)
class Found:
    """What answers, and by which way it was found. ``gate`` and ``tau`` are None where no gate was asked,
    ``confidence`` where the agreement with the full path was not calibrated. ``entry_tokens`` were run for this
    answer, ``reused_tokens`` of them (and of the session's) were not computed again."""

    answer: str
    question_class: str
    path: PathTaken
    ready: ReadyDistribution
    gate: bool | None
    tau: float | None
    confidence: float | None
    routed_by: str
    entry_tokens: int = 0
    reused_tokens: int = 0
    latency_us: int = 0


@dataclass(frozen=True, slots=True)
class Basis:
    """What it rests on: a session's state, the topic that fed it (None: a pushed session), the model."""

    evidence: Evidence
    topic: str | None
    model: str
    window_bars: int


A = TypeVar("A", bound=Answer)


def answer_of(kind: type[A], query: Query, found: Found, basis: Basis, now_ms: int) -> A:
    """The answer to ``query``, as ``kind``. ``now_ms`` is Unix time."""
    evidence, topic = basis.evidence, basis.topic
    return kind(
        session=query.session,
        question=query.question,
        answer=found.answer,
        class_=found.question_class,
        path=found.path,
        gate=found.gate,
        gap=found.ready.gap,
        tau=found.tau,
        confidence=found.confidence,
        fast_set_mass=found.ready.fast_set_mass,
        session_version=evidence.session_version,
        topic=topic,
        partition=None if topic is None else evidence.partition,
        offset=None if topic is None else evidence.offset,
        event_time=event_time(evidence.event_time_us),
        age_ms=age_of(evidence.record_time_ms, now_ms),
        latency_us=found.latency_us,
        window_bars=basis.window_bars,
        bars=evidence.bars,
        state=state_word(evidence),
        entry_tokens=found.entry_tokens,
        reused_tokens=found.reused_tokens,
        model=basis.model,
        routed_by=found.routed_by,
    )


def state_word(evidence: Evidence) -> str:
    """The state that an answer tells of. INCOMPLETE: its window may have a hole, because records had aged out of
    the log. What else a session's state says is about its cells and its region, and changes no answer."""
    if evidence.flags & StateFlag.INCOMPLETE:
        return "INCOMPLETE"
    return "WARMING_UP" if evidence.flags & StateFlag.WARMING_UP else "LIVE"
