"""The fast path (Eq. 3): the ready board's reader, the judge, the reply. No message, no model."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from query_api.errors import ApiError
from query_api.metrics import ApiMetrics
from query_api.schemas import AnswerBody
from stream_engine.board.layout import BoardError
from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.decision.judge import Outcome, Served, fast_answer, judge
from stream_engine.decision.route import Route
from stream_engine.messages import Check, Query

log = logging.getLogger(__name__)

MAX_CHECKS = 64
UNREADABLE = "unreadable"
"""Outcome where the board cannot be read at all."""


class FastPath:
    """One worker's view of the board. The engine may start later or again; until then every read is a miss.
    ``profile_digest`` is asked at each read: the model may come later as well.

    ``checks`` are the answers that the gate let through and that chance has picked, one in ``check_share``: the
    caller hands them to the engine once their replies are sent. An exact match is the full path's own distribution
    and needs no check.
    """

    def __init__(
        self,
        path: Path,
        worker: int,
        profile_digest: Callable[[], str | None],
        metrics: ApiMetrics,
        check_share: float = 0.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._path = path
        self._worker = worker
        self._profile_digest = profile_digest
        self._metrics = metrics
        self._check_share = check_share
        self._chance = chance
        self.checks: deque[Check] = deque(maxlen=MAX_CHECKS)
        self._reader: BoardReader | None = None
        self._problem = ""

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
        now_ms = int(time.time() * 1000)
        try:
            verdict = judge(query, route, (self._board(),), now_ms, self._profile_digest())
        except (BoardError, OSError) as error:
            self._report(error)
            self._metrics.fast_path(UNREADABLE)
            return None
        self._metrics.fast_path(verdict.outcome.value)
        if verdict.outcome is Outcome.NOT_FRESH and query.wait_ms == 0:
            raise ApiError(409, "freshness_not_met", verdict.unmet or "")
        if verdict.served is None:
            return None
        self._sample(query, route, verdict.served)
        return fast_answer(AnswerBody, query, verdict.served, now_ms)

    def _sample(self, query: Query, route: Route, served: Served[ReadySlot]) -> None:
        if not served.decision.fires or served.exact or route.class_name is None:
            return
        if self._chance() < self._check_share:
            self.checks.append(_check(query, route.class_name, served.reading))

    def _board(self) -> BoardReader:
        if self._reader is None:
            self._reader = BoardReader.open(self._path, self._worker)
        return self._reader

    def _report(self, error: Exception) -> None:
        """Log a problem once, not once a request."""
        if str(error) != self._problem:
            self._problem = str(error)
            log.error("the ready board %s cannot be read, so no fast path: %s", self._path, error)


def _check(query: Query, question_class: str, slot: ReadySlot) -> Check:
    ready = slot.ready
    return Check(
        session=query.session,
        question=query.question,
        question_class=question_class,
        session_version=slot.evidence.session_version,
        position=ready.position,
        token=ready.top1,
        gap=ready.gap,
        token_hash=slot.token_hash,
    )
