"""Queries: answered at once from a ready distribution (Alg. 2), after a step on the full path, or once their
freshness bounds are met. Those that wait are bounded in number, and in time by the patience of their askers."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from stream_engine.answering.admission import WAKING, Admission
from stream_engine.answering.full_path import FullPath
from stream_engine.answering.local_board import LocalBoard, LocalReading
from stream_engine.answering.promotion import PromotedQuestions
from stream_engine.answering.refusals import RETRY_AFTER_S
from stream_engine.answering.verification import VerificationDesk
from stream_engine.decision.judge import Served, fast_answer, judge
from stream_engine.decision.route import Route
from stream_engine.messages import Answer, ErrorReply, Query
from stream_engine.messages.counters import EngineCounters
from stream_engine.session.session import Session
from stream_engine.state.scheduler import QueryReply

WAKE_WITHIN_S = 5.0
"""A window is read in milliseconds, where there is a broker to read it from."""


@dataclass(slots=True)
class _Asked:
    """A query as it came in; times of the monotonic clock. At its ``deadline`` it is judged as it stands, from
    ``expires`` on nobody waits for the reply."""

    query: Query
    reply: QueryReply
    since: float
    deadline: float
    expires: float


class QueryDesk:
    """Takes queries in and sees them to their reply. Every query gets exactly one. Of what the gate lets through
    ``verification`` takes its sample, after the reply."""

    def __init__(
        self,
        admission: Admission,
        board: LocalBoard,
        full_path: FullPath,
        promoted: PromotedQuestions,
        verification: VerificationDesk,
        counters: EngineCounters,
    ) -> None:
        self._admission = admission
        self._board = board
        self._full_path = full_path
        self._promoted = promoted
        self._verification = verification
        self._counters = counters
        self._waiting: list[_Asked] = []

    @property
    def waiting(self) -> int:
        """Queries whose freshness bounds are not met yet."""
        return len(self._waiting)

    def ask(self, query: Query, reply: QueryReply) -> None:
        """Answer now, after a step, or once the query's bounds are met (at most ``wait_ms`` from now)."""
        now = time.monotonic()
        patience_s = math.inf if query.patience_ms is None else query.patience_ms / 1000
        self._try(
            _Asked(
                query=query, reply=reply, since=now, deadline=now + query.wait_ms / 1000, expires=now + patience_s
            )
        )

    def retry_waiting(self) -> None:
        """The state may have moved, or time passed: look again at what waits."""
        now = time.monotonic()
        for work in self._full_path.take_expired(now):
            self._expire(work.reply)
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if now >= asked.expires:
                self._expire(asked.reply)
            else:
                self._try(asked)

    def _try(self, asked: _Asked) -> None:
        now_ms = _now_ms()
        found = self._admission.look(asked.query, now_ms)
        if isinstance(found, Session):
            self._answer(asked, found, now_ms)
            return
        self._full_path.hasten(asked.query.session)
        if found.status == 422 or time.monotonic() >= self._until(asked, found):
            self._counters.queries_refused_total += 1
            asked.reply(found)
        elif self._has_room(asked):
            self._waiting.append(asked)

    @staticmethod
    def _until(asked: _Asked, refusal: ErrorReply) -> float:
        """How long it may wait for the reason of that refusal to pass. It wakes whether or not the
        asker would wait for bounds."""
        return max(asked.deadline, asked.since + WAKE_WITHIN_S) if refusal.kind == WAKING else asked.deadline

    def _has_room(self, asked: _Asked) -> bool:
        """Whether the query may wait here; where as many as may do already, it is refused."""
        overload = self._admission.overload(self.waiting + self._full_path.waiting)
        if overload is not None:
            self._counters.queries_shed_total += 1
            asked.reply(overload)
        return overload is None

    def _expire(self, reply: QueryReply) -> None:
        """Work on it would keep others waiting, until theirs are too late as well."""
        self._counters.queries_expired_total += 1
        message = "the query waited for too long: ask again"
        reply(ErrorReply(503, "overloaded", message, retry_after_s=RETRY_AFTER_S))

    def _answer(self, asked: _Asked, session: Session, now_ms: int) -> None:
        query = asked.query
        route = self._admission.route(query)
        if query.path != "full":
            verdict = judge(query, route, (self._board,), now_ms)
            if verdict.served is not None:
                self._serve(asked, route, verdict.served, now_ms)
                return
            self._promoted.missed(session, query.question, route.class_name)
            if query.path == "fast":
                self._counters.queries_refused_total += 1
                message = f"session {session.id!r} has no ready distribution for this question at the moment"
                asked.reply(ErrorReply(409, "no_ready_distribution", message, param="path"))
                return
        if self._has_room(asked):
            self._full_path.add(query, asked.reply, asked.since, asked.expires, route)

    def _serve(self, asked: _Asked, route: Route, served: Served[LocalReading], now_ms: int) -> None:
        query, session = asked.query, served.reading.session
        if served.exact:
            self._promoted.asked(session, query.question, route.class_name)
        self._counters.answers_fast_total += 1
        latency_us = int((time.monotonic() - asked.since) * 1e6)
        asked.reply(fast_answer(Answer, query, served, now_ms, latency_us))
        if served.decision.fires and not served.exact and route.class_name is not None:
            self._verification.sample(session, query.question, route.class_name, served.reading.ready)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
