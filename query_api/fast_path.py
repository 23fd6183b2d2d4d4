"""The fast path (Eq. 3, Alg. 2): read the ready board, check freshness, gate, reply. No message, no model."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from query_api.errors import ApiError
from query_api.metrics import ApiMetrics
from query_api.questions import Route
from query_api.schemas import AnswerBody
from stream_engine.board.layout import BoardError, BoardMeta, Miss
from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.decision.freshness import age_of, unmet_bound
from stream_engine.decision.gate import Gate, GateDecision, GateReason
from stream_engine.messages import Check, Query
from stream_engine.questions.router import EXACT
from stream_engine.util.timestamps import event_time

log = logging.getLogger(__name__)

LIVE, INCOMPLETE = "LIVE", "INCOMPLETE"
MAX_CHECKS = 64


class Outcome(Enum):
    """What came of a query's try, beside the board's own misses and the gate's reasons."""

    BELOW_GATE = "below_gate"
    """Served although the gate did not fire, because the caller asked for ``path: fast``."""
    NOT_FRESH = "not_fresh"
    NO_ENTRY = "no_entry"
    """No standing query has this wording, and the generic header does not answer its class."""
    OTHER_PROFILE = "other_profile"
    """The engine runs another profile than this process routes by."""
    UNREADABLE = "unreadable"


class FastPath:
    """One worker's view of the board. The engine may start later or again; until then every read is a miss.

    ``checks`` are the answers that the gate let through and that chance has picked, one in ``check_share``: the
    caller hands them to the engine once their replies are sent. An exact match is the full path's own distribution
    and needs no check.
    """

    def __init__(
        self,
        path: Path,
        worker: int,
        profile_digest: str | None,
        metrics: ApiMetrics,
        check_share: float = 0.0,
        clock_ms: Callable[[], float] = lambda: time.time() * 1000,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._path = path
        self._worker = worker
        self._profile_digest = profile_digest
        self._metrics = metrics
        self._check_share = check_share
        self._clock_ms = clock_ms
        self._chance = chance
        self.checks: deque[Check] = deque(maxlen=MAX_CHECKS)
        self._reader: BoardReader | None = None
        self._problem = ""
        self._meta: BoardMeta | None = None
        self._gate: Gate | None = None

    def alive(self) -> bool:
        """Whether an engine holds the board's lease and this worker can read the board."""
        try:
            return self._board().alive()
        except (BoardError, OSError) as error:
            self._report(error)
            return False

    def answer(self, query: Query, route: Route) -> AnswerBody | None:
        """The answer from a valid ready distribution, or None where the engine has to be asked.

        Raises a 409 ApiError where the freshness bounds are not met and the caller does not wait for them.
        ``latency_us`` is left to the caller, who knows when the request came.
        """
        try:
            answer, outcome = self._try(query, route)
        except (BoardError, OSError) as error:
            self._report(error)
            answer, outcome = None, Outcome.UNREADABLE
        self._metrics.fast_path(outcome.value)
        return answer

    def _try(self, query: Query, route: Route) -> tuple[AnswerBody | None, Outcome | Miss | GateReason]:
        board = self._board()
        slot, exact = board.read(query.session, route.entry_key), True
        if not isinstance(slot, ReadySlot) and route.generic:
            slot, exact = board.read(query.session, ""), False
        if not isinstance(slot, ReadySlot):
            absent = slot in (Miss.ABSENT, Miss.FULL) and not route.generic
            return None, Outcome.NO_ENTRY if absent else slot
        meta, gate = self._policy(board)
        if meta is None or gate is None:
            return None, Miss.LEASE
        if self._profile_digest not in (None, meta.profile_digest):
            return None, Outcome.OTHER_PROFILE
        board.consume(slot)
        if query.min_offset is not None:
            # The offset word is read before the slot that has to include it: a commit between the two reads
            # would otherwise lend the older slot its offset.
            applied = board.applied(slot.evidence.topic_index, query.min_offset.partition)
            again = board.read(query.session, route.entry_key if exact else "")
            if not isinstance(again, ReadySlot):
                return None, again
            if again.generation != slot.generation:
                board.consume(again)
            slot = again
        else:
            applied = None
        unmet = unmet_bound(
            query, version=slot.evidence.session_version, applied=applied, age_ms=self._age_ms(slot)
        )
        if unmet is not None:
            if query.wait_ms == 0:
                self._metrics.fast_path(Outcome.NOT_FRESH.value)
                raise ApiError(409, "freshness_not_met", unmet)
            return None, Outcome.NOT_FRESH
        routed_by = EXACT if exact else route.by.value
        decision = gate.decide(slot.ready, route.question_class, exact=exact, flags=slot.evidence.flags)
        if decision.fires:
            if not exact and route.question_class and self._chance() < self._check_share:
                self.checks.append(_check(query, route.question_class, slot))
            return self._body(query, slot, meta, decision, routed_by), decision.reason
        # A caller may waive the gap, but neither an answer that has no word nor a window that is too short.
        servable = decision.word is not None and decision.reason is not GateReason.WARMING_UP
        if query.path == "fast" and servable:
            return self._body(query, slot, meta, decision, routed_by), Outcome.BELOW_GATE
        return None, decision.reason

    def _age_ms(self, slot: ReadySlot) -> int | None:
        return age_of(slot.evidence.record_time_ms, int(self._clock_ms()))

    def _body(
        self, query: Query, slot: ReadySlot, meta: BoardMeta, decision: GateDecision, routed_by: str
    ) -> AnswerBody:
        evidence, ready = slot.evidence, slot.ready
        pushed = evidence.topic_index < 0
        return AnswerBody(
            session=query.session,
            question=query.question,
            answer=decision.word or "",
            class_=decision.question_class or "",
            path="fast",
            gate=decision.fires,
            gap=ready.gap,
            tau=decision.tau,
            confidence=decision.confidence,
            fast_set_mass=ready.fast_set_mass,
            session_version=evidence.session_version,
            topic=None if pushed else meta.topics[evidence.topic_index],
            partition=None if pushed else evidence.partition,
            offset=None if pushed else evidence.offset,
            event_time=event_time(evidence.event_time_us),
            age_ms=self._age_ms(slot),
            latency_us=0,
            window_bars=meta.window_bars,
            bars=evidence.bars,
            state=INCOMPLETE if evidence.flags else LIVE,
            entry_tokens=0,  # no entry was run for this answer
            reused_tokens=0,
            model=meta.model,
            routed_by=routed_by,
        )

    def _board(self) -> BoardReader:
        if self._reader is None:
            self._reader = BoardReader.open(self._path, self._worker)
        return self._reader

    def _policy(self, board: BoardReader) -> tuple[BoardMeta | None, Gate | None]:
        """META and its gate, made anew only when META changes (tau is raised, a class is closed)."""
        meta = board.meta
        if meta is not self._meta:
            self._meta = meta
            self._gate = None if meta is None else gate_of(meta)
        return self._meta, self._gate

    def _report(self, error: Exception) -> None:
        """Log a problem once, not once a request."""
        if str(error) != self._problem:
            self._problem = str(error)
            log.error("the ready board %s cannot be read, so no fast path: %s", self._path, error)


def gate_of(meta: BoardMeta) -> Gate:
    """The engine's gate, as its board tells it."""
    return Gate(meta.classes, meta.answers, meta.noise, meta.calibration_digest, meta.confidence)


def _check(query: Query, question_class: str, slot: ReadySlot) -> Check:
    ready = slot.ready
    return Check(
        query.session,
        query.question,
        question_class,
        slot.evidence.session_version,
        ready.position,
        ready.top1,
        ready.gap,
        slot.token_hash,
    )
