"""The full path of a query: its entry is decoded on the session's resident state, a step a token."""

from __future__ import annotations

import time

from stream_engine.answering.answers import basis_of, is_complete, word_of
from stream_engine.answering.promotion import PromotedQuestions
from stream_engine.decision.answer import Found, answer_of
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.decision.route import Route
from stream_engine.messages import Answer, ErrorReply, Query
from stream_engine.messages.counters import EngineCounters
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.render.rendering import Builder
from stream_engine.session.session import ResidentBranch, Session
from stream_engine.state.live_gate import LiveGate
from stream_engine.state.scheduler import QueryReply, QueryWork, Scheduler


class FullPath:
    """Sees queries from their place in the queue to their reply."""

    def __init__(
        self,
        builder: Builder,
        scheduler: Scheduler,
        gate: LiveGate,
        promoted: PromotedQuestions,
        counters: EngineCounters,
    ) -> None:
        self._builder = builder
        self._scheduler = scheduler
        self._gate = gate
        self._promoted = promoted
        self._counters = counters

    @property
    def waiting(self) -> int:
        """Queries in hand that need a step."""
        return self._scheduler.query_count

    def add(self, query: Query, reply: QueryReply, since: float, expires: float, route: Route) -> None:
        """A query that needs steps; times of the monotonic clock."""
        entry = self._builder.query_entry(query.question)
        self._scheduler.add_query(
            QueryWork(
                query=query,
                reply=reply,
                since=since,
                entry=entry,
                class_name=route.class_name,
                routed_by=route.by.value,
                expires=expires,
            )
        )

    def hasten(self, session: str) -> None:
        """A query cannot be answered on the session's present state: if a commit of it waits, that is the next."""
        self._scheduler.hasten(session)

    def take_expired(self, now: float) -> list[QueryWork]:
        """Queries for which nobody waits any more."""
        return self._scheduler.take_expired(now)

    def advance(self, work: QueryWork, session: Session, logits: Distribution) -> None:
        """One more token of an answer has been decoded; the reply, once it is complete."""
        work.computed = len(work.entry) + len(work.generated)
        work.generated.append(logits.top1)
        if work.first is None:
            work.first = logits
            assert work.cell is not None
            session.keep_branch(ResidentBranch(work.entry, work.cell))
            ready = ReadyDistribution.at(len(session.tokens) + len(work.entry), logits)
            self._promoted.decoded(session, work.query.question, ready)
        if not is_complete(self._builder, work.generated, work.class_name):
            return
        self._scheduler.query_done(work)
        answer, answered_class = word_of(self._builder, work.generated, work.class_name)
        found = Found(
            answer=answer,
            question_class=answered_class,
            path="fallthrough" if work.reused else "cold",
            ready=ReadyDistribution.at(len(session.tokens) + len(work.entry), work.first),
            gate=None,
            tau=None,
            confidence=self._gate.now.certain,
            routed_by=work.routed_by,
            entry_tokens=len(work.entry),
            reused_tokens=work.reused,
            latency_us=int((time.monotonic() - work.since) * 1e6),
        )
        if work.reused:
            self._counters.answers_fallthrough_total += 1
        else:
            self._counters.answers_cold_total += 1
        now_ms = time.time_ns() // 1_000_000
        work.reply(answer_of(Answer, work.query, found, basis_of(session), now_ms))

    def restart(self, session_id: str) -> None:
        """The session's log has changed under an answer of several tokens: it begins anew, on the new one."""
        for work in self._scheduler.queries_of(session_id):
            work.restart()

    def refuse(self, work: QueryWork, error: ErrorReply) -> None:
        """A query that waited for a step cannot be answered."""
        self._scheduler.query_done(work)
        self._counters.queries_refused_total += 1
        work.reply(error)
