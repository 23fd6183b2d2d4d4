"""Whether a ready distribution may answer a query, and the answer with its evidence (Eq. 3, Alg. 2).

The one place that decides it: an API process asks it about the ready board, the engine about its own sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic

from stream_engine.decision.answer import A, Basis, Found, answer_of
from stream_engine.decision.entry import GENERIC_KEY
from stream_engine.decision.freshness import age_of, unmet_bound
from stream_engine.decision.gate import GateDecision, GateReason
from stream_engine.decision.reading import Board, Miss, Policy, R
from stream_engine.decision.route import EXACT, Route
from stream_engine.messages import Query


class Outcome(Enum):
    """What came of a query's try, beside the board's own misses and the gate's reasons."""

    BELOW_GATE = "below_gate"
    """Served although the gate did not fire, because the caller asked for ``path: fast``."""
    NOT_FRESH = "not_fresh"
    NO_ENTRY = "no_entry"
    """No standing query has this wording, and the generic header does not answer its class."""
    OTHER_PROFILE = "other_profile"
    """The engine runs another profile than the question was routed by."""


@dataclass(frozen=True, slots=True)
class Served(Generic[R]):
    """A distribution that may answer: where it was read, by which policy, and what the gate said. ``routed_by`` is
    the answer's; ``exact`` says that the distribution is of the question's own words."""

    board: Board[R]
    reading: R
    policy: Policy
    decision: GateDecision
    routed_by: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Verdict(Generic[R]):
    """``served`` is None where no ready distribution may answer; ``unmet`` says which freshness bound is not
    met."""

    outcome: Outcome | Miss | GateReason
    served: Served[R] | None = None
    unmet: str | None = None


_NEARNESS: tuple[Outcome | Miss, ...] = (
    Miss.NO_BOARD,
    Miss.LAYOUT,
    Outcome.NO_ENTRY,
    Miss.ABSENT,
    Miss.FULL,
    Miss.LEASE,
    Miss.INVALID,
    Miss.TORN,
    Outcome.OTHER_PROFILE,
)
"""What a board says that has no answer, by how much it tells of the session. One that lost its engine may be
the one that had it; one whose slot is of another version or profile is."""


def judge(
    query: Query, route: Route, boards: Sequence[Board[R]], now_ms: int, profile_digest: str | None = None
) -> Verdict[R]:
    """Alg. 2 on the first of ``boards`` that has the session's decision point: an API process may read several, of
    engines that have different sessions. Where none has it, the verdict is of the one that comes nearest.

    ``profile_digest`` is of the profile that ``route`` rests on: another one on a board is no match, None
    matches any. ``now_ms`` is Unix time."""
    nearest: Outcome | Miss = Miss.NO_BOARD
    for board in boards:
        verdict = _judge_on(board, query, route, now_ms, profile_digest)
        outcome = verdict.outcome
        if isinstance(outcome, GateReason) or outcome not in _NEARNESS:
            return verdict
        nearest = max(nearest, outcome, key=_NEARNESS.index)
    return Verdict(nearest)


def _judge_on(board: Board[R], query: Query, route: Route, now_ms: int, profile_digest: str | None) -> Verdict[R]:
    key = route.key
    reading = board.read(query.session, key)
    if isinstance(reading, Miss) and route.generic:
        key = GENERIC_KEY
        reading = board.read(query.session, key)
    if isinstance(reading, Miss):
        absent = reading in (Miss.ABSENT, Miss.FULL) and not route.generic
        return Verdict(Outcome.NO_ENTRY if absent else reading)
    policy = board.policy
    if policy is None:
        return Verdict(Miss.LEASE)
    if profile_digest not in (None, policy.profile_digest):
        return Verdict(Outcome.OTHER_PROFILE)
    board.consume(reading)
    applied = None
    if query.min_offset is not None:
        # The offset word is read before the slot that has to include it: a commit between the two reads would
        # otherwise lend the older slot its offset.
        applied = board.applied(reading.evidence.topic_index, query.min_offset.partition)
        again = board.read(query.session, key)
        if isinstance(again, Miss):
            return Verdict(again)
        if again.generation != reading.generation:
            board.consume(again)
        reading = again
    evidence = reading.evidence
    unmet = unmet_bound(
        query, version=evidence.session_version, applied=applied, age_ms=age_of(evidence.record_time_ms, now_ms)
    )
    if unmet is not None:
        return Verdict(Outcome.NOT_FRESH, unmet=unmet)
    exact = key == route.key
    decision = policy.gate.decide(reading.ready, route.class_name, exact=exact, flags=evidence.flags)
    served = Served(
        board=board,
        reading=reading,
        policy=policy,
        decision=decision,
        routed_by=EXACT if exact else route.by.value,
        exact=exact,
    )
    if decision.fires:
        return Verdict(decision.reason, served)
    # A caller may waive the gap, but neither an answer that has no word nor a window that is too short.
    if query.path == "fast" and decision.word is not None and decision.reason is not GateReason.WARMING_UP:
        return Verdict(Outcome.BELOW_GATE, served)
    return Verdict(decision.reason)


def fast_answer(kind: type[A], query: Query, served: Served[R], now_ms: int, latency_us: int = 0) -> A:
    """The answer that ``served`` gives, as ``kind``."""
    evidence, decision, policy = served.reading.evidence, served.decision, served.policy
    found = Found(
        answer=decision.word or "",
        question_class=decision.question_class or "",
        path="fast",
        ready=served.reading.ready,
        gate=decision.fires,
        tau=decision.tau,
        confidence=decision.confidence,
        routed_by=served.routed_by,
        latency_us=latency_us,
    )
    basis = Basis(evidence, served.board.topic(evidence.topic_index), policy.model, policy.window_bars)
    return answer_of(kind, query, found, basis, now_ms)
