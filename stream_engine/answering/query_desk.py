"""Queries: answered at once from a ready distribution (Alg. 2), after a step on the full path, or once their
freshness bounds are met. Those that wait are bounded in number, and in time by the patience of their askers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stream_engine.answering.answers import build_answer, is_complete
from stream_engine.answering.local_board import LocalBoard, LocalReading
from stream_engine.answering.promotion import PromotedQuestions
from stream_engine.decision.freshness import age_of, unmet_bound
from stream_engine.decision.gate import Gate
from stream_engine.decision.judge import Served, fast_answer, judge
from stream_engine.decision.reading import Policy
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.decision.route import Route
from stream_engine.messages import Answer, ErrorReply, Query
from stream_engine.messages.counters import EngineCounters
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.profile import Profile
from stream_engine.model.render.rendering import Builder
from stream_engine.questions.router import Router
from stream_engine.session.session import ResidentBranch, Session, SessionState
from stream_engine.state.partitions import PartitionTable
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Lane, QueryReply, QueryWork, Scheduler

RETRY_AFTER_S = 1.0


@dataclass(slots=True)
class _Asked:
    """A query as it came in; times of the monotonic clock. At its ``deadline`` it is judged as it stands, from
    ``expires`` on nobody waits for the reply."""

    query: Query
    reply: QueryReply
    since: float
    deadline: float
    expires: float


Sampled = Callable[[Session, str, str, ReadyDistribution], None]


class QueryDesk:
    """Takes queries in and sees them to their reply. Every query gets exactly one. At most ``max_queries`` wait,
    for a step or for their bounds. ``sampled`` is told of each answer that the gate let through, after its
    reply."""

    def __init__(
        self,
        builder: Builder,
        router: Router,
        gate: Gate,
        sessions: Mapping[str, Session],
        scheduler: Scheduler,
        partitions: PartitionTable,
        publication: Publication,
        promoted: PromotedQuestions,
        counters: EngineCounters,
        sampled: Sampled,
        max_queries: int,
    ) -> None:
        self._builder = builder
        self._router = router
        self._board = LocalBoard(sessions, partitions, publication, _policy(builder.profile, gate))
        self._sessions = sessions
        self._scheduler = scheduler
        self._partitions = partitions
        self._promoted = promoted
        self._counters = counters
        self._sampled = sampled
        self._max_queries = max_queries
        self._waiting: list[_Asked] = []

    @property
    def waiting(self) -> int:
        """Queries whose freshness bounds are not met yet."""
        return len(self._waiting)

    def use_gate(self, gate: Gate) -> None:
        """Risk control has moved it."""
        self._board.policy = _policy(self._builder.profile, gate)

    def ask(self, query: Query, reply: QueryReply) -> None:
        """Answer now, after a step, or once the query's bounds are met (at most ``wait_ms`` from now)."""
        now = time.monotonic()
        patience_s = math.inf if query.patience_ms is None else query.patience_ms / 1000
        self._try(_Asked(query, reply, now, now + query.wait_ms / 1000, now + patience_s))

    def retry_waiting(self) -> None:
        """The state may have moved, or time passed: look again at what waits."""
        now = time.monotonic()
        for work in self._scheduler.take_expired(now):
            self._expire(work.reply)
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if now >= asked.expires:
                self._expire(asked.reply)
            else:
                self._try(asked)

    def advance(self, work: QueryWork, session: Session, logits: Distribution) -> None:
        """One more token of an answer has been decoded; the reply, once it is complete."""
        work.computed = len(work.entry) + len(work.generated)
        work.generated.append(logits.top1)
        if work.first is None:
            work.first = logits
            assert work.cell is not None
            session.branches.append(ResidentBranch(work.entry, work.cell))
            ready = ReadyDistribution.at(len(session.tokens) + len(work.entry), logits)
            self._promoted.decoded(session, work.query.question, ready)
        if not is_complete(self._builder, work.generated, work.class_name):
            return
        self._scheduler.query_done(work)
        ready = ReadyDistribution.at(len(session.tokens) + len(work.entry), work.first)
        answer = build_answer(
            work.query,
            session,
            ready,
            path="fallthrough" if work.reused else "cold",
            tokens=work.generated,
            class_name=work.class_name,
            confidence=self._board.policy.gate.certain,
            entry_tokens=len(work.entry),
            reused_tokens=work.reused,
            now_ms=_now_ms(),
            latency_us=int((time.monotonic() - work.since) * 1e6),
            routed_by=self._router.route(work.query.question, work.query.session).by.value,
        )
        if work.reused:
            self._counters.answers_fallthrough_total += 1
        else:
            self._counters.answers_cold_total += 1
        work.reply(answer)

    def restart(self, session_id: str) -> None:
        """The session's log has changed under an answer of several tokens: it begins anew, on the new one."""
        for work in self._scheduler.queries_of(session_id):
            work.restart()

    def refuse(self, work: QueryWork, error: ErrorReply) -> None:
        """A query that waited for a step cannot be answered."""
        self._scheduler.query_done(work)
        self._counters.queries_refused_total += 1
        work.reply(error)

    def _try(self, asked: _Asked) -> None:
        now_ms = _now_ms()
        refusal = self._refusal(asked.query, now_ms)
        if refusal is None:
            self._answer(asked, now_ms)
        elif refusal.status == 422 or time.monotonic() >= asked.deadline:
            self._counters.queries_refused_total += 1
            asked.reply(refusal)
        elif self._has_room(asked):
            self._waiting.append(asked)

    def _has_room(self, asked: _Asked) -> bool:
        """Whether the query may wait here; where as many as may do already, it is refused."""
        if self.waiting + self._scheduler.query_count < self._max_queries:
            return True
        self._counters.queries_shed_total += 1
        message = f"{self._max_queries} queries wait for the engine already: ask again"
        asked.reply(ErrorReply(429, "overloaded", message, retry_after_s=RETRY_AFTER_S))
        return False

    def _expire(self, reply: QueryReply) -> None:
        """Work on it would keep others waiting, until theirs are too late as well."""
        self._counters.queries_expired_total += 1
        message = "the query waited for too long: ask again"
        reply(ErrorReply(503, "overloaded", message, retry_after_s=RETRY_AFTER_S))

    def _refusal(self, query: Query, now_ms: int) -> ErrorReply | None:
        """Why the query cannot be answered on the present state; None when it can."""
        route = self._router.route(query.question, query.session)
        if route.question_class is None and not self._router.answers_anything:
            return unsupported(self._router)
        session = self._sessions.get(query.session)
        if session is None and self._partitions.filling:
            message = f"session {query.session!r} is not here: windows are being filled from the log; ask again"
            return ErrorReply(503, "session_rebuilding", message, retry_after_s=RETRY_AFTER_S)
        if session is None:
            return not_found(query.session)
        if session.state in (SessionState.REBUILDING, SessionState.EMPTY):
            message = f"session {session.id!r} is being filled from the log; ask again"
            return ErrorReply(503, "session_rebuilding", message, retry_after_s=RETRY_AFTER_S)
        bound = query.min_offset
        topic = session.source.topic if session.source else ""
        size = self._partitions.sizes.get(topic)
        if bound is not None and size is not None and bound.partition >= size:
            message = f"{topic} has no partition {bound.partition}: it has {size}"
            return ErrorReply(422, "invalid_request_error", message, "min_offset", "no_such_partition")
        unmet = unmet_bound(
            query,
            version=session.version,
            applied=self._partitions.applied(bound.partition, topic or None) if bound else None,
            age_ms=age_of(session.timestamp_ms, now_ms),
        )
        return ErrorReply(409, "freshness_not_met", unmet) if unmet else None

    def _answer(self, asked: _Asked, now_ms: int) -> None:
        query = asked.query
        session = self._sessions[query.session]
        route = self._router.route(query.question, query.session)
        if query.path != "full":
            verdict = judge(query, route, (self._board,), now_ms)
            if verdict.served is not None:
                self._serve(asked, route, verdict.served, now_ms)
                return
            if self._promoted.asked(session, query.question, route.class_name):
                self._scheduler.add(Lane.LONE, session.id)
            if query.path == "fast":
                self._counters.queries_refused_total += 1
                message = f"session {session.id!r} has no ready distribution for this question at the moment"
                asked.reply(ErrorReply(409, "no_ready_distribution", message, param="path"))
                return
        if self._has_room(asked):
            entry = self._builder.query_entry(query.question)
            work = QueryWork(
                query=query,
                reply=asked.reply,
                since=asked.since,
                entry=entry,
                class_name=route.class_name,
                expires=asked.expires,
            )
            self._scheduler.add_query(work)

    def _serve(self, asked: _Asked, route: Route, served: Served[LocalReading], now_ms: int) -> None:
        query, session = asked.query, served.reading.session
        if served.exact:
            self._promoted.asked(session, query.question, route.class_name)
        self._counters.answers_fast_total += 1
        latency_us = int((time.monotonic() - asked.since) * 1e6)
        asked.reply(fast_answer(Answer, query, served, now_ms, latency_us))
        if served.decision.fires and not served.exact and route.class_name is not None:
            self._sampled(session, query.question, route.class_name, served.reading.ready)


def unsupported(router: Router) -> ErrorReply:
    """The model does not answer such a question: says what can be asked."""
    return ErrorReply(
        422, "invalid_request_error", router.refusal(), param="question", code="question_not_supported"
    )


def question_too_long() -> ErrorReply:
    message = "the question has no room in the session's share of the cell budget; ask a shorter one"
    return ErrorReply(422, "invalid_request_error", message, param="question", code="question_too_long")


def not_found(session_id: str) -> ErrorReply:
    """No record with that key was applied yet."""
    message = f"no session {session_id!r}: no record with that key was applied yet"
    return ErrorReply(404, "not_found_error", message)


def _policy(profile: Profile, gate: Gate) -> Policy:
    return Policy(gate, profile.name, profile.digest(), profile.window_bars)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
