"""The engine: plan -> forward -> publish. One thread owns everything here that changes.

Messages come in through the methods, work happens in ``step``, and what is to be sent comes out of
``acknowledgements`` and the ``emit`` callback. No sockets, no Kafka, no HTTP: usable in-process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from uuid import uuid4

from stream_engine.answering.answers import build_evaluation, build_missed
from stream_engine.answering.promotion import PromotedQuestions
from stream_engine.answering.query_desk import (
    QueryDesk,
    not_found,
    question_too_long,
    unsupported,
)
from stream_engine.answering.verification import VerificationDesk
from stream_engine.config import EngineSettings, RiskSettings
from stream_engine.decision.entry import (
    Entry,
    EntryKind,
    envelope_entry,
    generic_entry,
)
from stream_engine.decision.gate import ClassGate, Gate
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.engine.agentic import Turns
from stream_engine.engine.integrity import check_integrity
from stream_engine.engine.planner import PlannedSession, Planner
from stream_engine.ingest.ingest import Ingest
from stream_engine.messages import Committed, ErrorReply, Event, StandingPut, StandingQuery
from stream_engine.messages.counters import EngineCounters
from stream_engine.model.forward.runner import Runner, SegmentResult
from stream_engine.model.forward.step import Segment
from stream_engine.model.render.rendering import Builder
from stream_engine.questions.router import Router
from stream_engine.risk.monitor import RiskMonitor
from stream_engine.session.cell_budget import BudgetShape, CellBudget
from stream_engine.session.session import ResidentBranch, Session, SessionState, Source
from stream_engine.standing.registered_queries import RegisteredQueries, covers
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Lane, Scheduler
from stream_engine.util.timestamps import event_time

log = logging.getLogger(__name__)

SELF_TEST_S = 5.0
UNWATCHED = RiskSettings(check_share=0.0)
"""An engine used in-process checks nothing, unless it is given a monitor."""


class Engine:
    """Resident sessions of one model."""

    def __init__(
        self,
        settings: EngineSettings,
        builder: Builder,
        runner: Runner,
        shape: BudgetShape,
        gate: Gate,
        publication: Publication,
        emit: Callable[[Event], None] = lambda event: None,
        risk: RiskMonitor | None = None,
    ) -> None:
        self.boot_id = uuid4().hex
        self.settings = settings
        self.builder = builder
        self.router = Router(builder.profile)
        self.sessions: dict[str, Session] = {}
        self.counters = EngineCounters()
        self.self_test_error: str | None = None
        self._next_self_test = 0.0
        self.standing = RegisteredQueries(builder)
        self.scheduler = Scheduler(settings.commit_every)
        self.budget = CellBudget(shape)
        self._runner = runner
        self.publication = publication
        self._emit = emit
        self._certain = gate.certain
        self._generic = generic_entry(builder)
        self._envelope = envelope_entry(builder)
        self.ingest = Ingest(
            self.boot_id,
            self.sessions,
            self.scheduler,
            publication,
            self.counters,
            self._open_session,
            self.drop_session,
            settings.quiet_records,
        )
        self.promoted = PromotedQuestions(
            settings,
            builder,
            publication,
            lambda session_id: [entry.key for entry in self.standing.entries(session_id)],
            self.counters,
        )
        self._gate = gate
        self.verification = VerificationDesk(
            risk or RiskMonitor(UNWATCHED, gate.classes),
            gate.noise,
            builder,
            self.sessions,
            self.budget,
            self.scheduler,
            self._apply_gates,
            emit,
        )
        self.queries = QueryDesk(
            builder,
            self.router,
            gate,
            self.sessions,
            self.scheduler,
            self.ingest.partitions,
            publication,
            self.promoted,
            self.counters,
            self.verification.sample,
            settings.max_queries,
        )
        self._turns = Turns(
            builder,
            runner,
            self.sessions,
            self.budget,
            self.scheduler,
            self.queries,
            publication,
            lambda session_id: self._open_session(session_id, None),
            lambda session: self._missed(session, session.owed, "overtaken"),
        )
        self._planner = Planner(
            settings,
            self.scheduler,
            self.sessions,
            self.budget,
            runner,
            self.entries,
            self._evict,
            self.counters,
        )

        if self.verification.monitor.moved:
            self._apply_gates(self.verification.monitor.gates())

    # --- sessions ------------------------------------------------------------------------------------

    def entries(self, session: Session) -> tuple[Entry, ...]:
        """The decision points of a session: header, standing queries, tool envelope, promoted questions."""
        generic = () if self.settings.preposition == "off" else (self._generic,)
        envelope = (self._envelope,) if session.awaiting_tool else ()
        return (*generic, *self.standing.entries(session.id), *envelope, *self.promoted.entries(session.id))

    def _open_session(self, session_id: str, source: Source | None) -> Session:
        session = self.sessions[session_id] = Session(session_id, self.builder, source)
        return session

    def drop_session(self, session: Session) -> None:
        """Remove a session; queries that wait for it are refused. A Kafka-fed one lives again with its next
        record."""
        del self.sessions[session.id]
        work = self.scheduler.drop_session(session.id)
        if work is not None:
            work.give_up()
        for query in self.scheduler.queries_of(session.id):
            self.queries.refuse(query, not_found(session.id))
        self.budget.release(session.id)
        self.publication.closed(session)
        self.standing.forget_session(session.id)
        self.promoted.forget_session(session.id)
        if session.source is not None and (owned := self.ingest.partitions.get(session.source)) is not None:
            owned.sessions.discard(session.id)
            if session.has_window:
                owned.deleted.append(session.id)

    def _evict(self, session: Session) -> None:
        """The session's cells go to another one: tokens only from now on. What is ready stays so until its next
        change."""
        session.lose_cells()
        session.move_to(SessionState.EVICTED if self.ingest.serves(session) else SessionState.REBUILDING)
        self.counters.evictions_total += 1

    # --- agentic sessions ----------------------------------------------------------------------------

    def append_turn(self, session_id: str, tokens: tuple[int, ...]) -> Session:
        """Extend a pushed session by durable tokens; it is opened where it does not exist. Raises TurnRefused."""
        return self._turns.append(session_id, tokens)

    def await_tool(self, session_id: str) -> None:
        """A tool call was emitted: its result's envelope is decoded ahead. Raises TurnRefused."""
        self._turns.await_tool(session_id)

    def resume_tool(self, session_id: str, payload: str) -> int:
        """The tool has answered. Returns how many tokens of its envelope were resident. Raises TurnRefused."""
        return self._turns.resume_tool(session_id, payload)

    # --- standing queries ----------------------------------------------------------------------------

    def register(self, request: StandingPut) -> StandingQuery | ErrorReply:
        """Register a standing query; sessions it covers are evaluated next, at their present version."""
        route = self.router.route(request.question, request.pattern)
        if route.question_class is None:
            return unsupported(self.router)
        previous = self.standing.get(request.id) if request.id else None
        if previous is not None and (previous.session, previous.question) != (request.pattern, route.key):
            self.unregister(previous.id)
        query = self.standing.put(request, route.question_class.name)
        for session in self.sessions.values():
            self.promoted.registered(session.id)
            if not covers(query.session, session.id) or self.standing.answered(session.id, query.id):
                continue
            if query.question in session.ready:
                self._evaluate_query(query, session)  # decoded for another query of the same question
            elif session.current or session.state is SessionState.EVICTED:
                self.scheduler.add(Lane.STANDING, session.id)
        return query

    def unregister(self, query_id: str) -> bool:
        query = self.standing.get(query_id)
        if query is None:
            return False
        self.standing.delete(query_id)
        for session in self.sessions.values():
            if query.question not in {entry.key for entry in self.standing.entries(session.id)}:
                session.ready.pop(query.question, None)
                self.publication.removed(session, query.question)
        return True

    # --- the loop ------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One step: plan, forward, publish. False when there was nothing to run."""
        self.publication.heartbeat()
        self.queries.retry_waiting()
        self.promoted.look(self.sessions)
        if self.scheduler.in_background:
            self.verification.prune()
        planned = self._planner.plan()
        if not planned:
            return False
        self.publication.heartbeat()  # planning has applied the commits' records: that alone may take long
        parts = [(one, one.segment()) for one in planned]
        segments = [segment for _, segment in parts if segment is not None]
        started = time.perf_counter()
        results = iter(self._runner.run(segments) if segments else ())
        if segments:
            self.counters.step_seconds_total += time.perf_counter() - started
            self.counters.steps_total += 1
            self.counters.step_tokens_total += sum(segment.size for segment in segments)
        for one, segment in parts:
            self._finish(one, next(results) if segment is not None else SegmentResult(()))
        return True

    def run_until_idle(self) -> None:
        """Steps until there is no work left (in-process use and tests)."""
        while self.step():
            pass

    def when_idle(self) -> None:
        """Between messages, now and then: a one-token self-test, the watched risk's state file, and the integrity
        check where it is on."""
        now = time.monotonic()
        if now < self._next_self_test:
            return
        self._next_self_test = now + SELF_TEST_S
        shape = self.budget.shape
        try:
            # The last token of the frozen prefix, onto its own cell: the same values again.
            self._runner.run([Segment(shape.prefix_base, shape.prefix - 1, self.builder.prefix[-1:])])
            self.self_test_error = None
        except Exception as error:  # whatever it is, it would hit the next commit as well
            log.exception("self-test failed")
            self.self_test_error = str(error)
        self.verification.monitor.keep()
        if self.settings.check_integrity:
            self.check_integrity()

    def close(self) -> None:
        """The board is marked dead: readers refuse its slots at once. What the checks have found is written down
        first: after that another engine may serve this board."""
        self.verification.monitor.keep()
        self.publication.close()

    def check_integrity(self) -> None:
        """Cells = tokens = boundary, for every session; no extent overlaps another; and what is ready, here and on
        the board, is of the session's present log. Raises AssertionError with what differs."""
        check_integrity(self.sessions.values(), self.budget, self.scheduler, self.publication, self.entries)

    def _apply_gates(self, classes: Mapping[str, ClassGate]) -> None:
        """Answers of this process and of every reader of the board obey at once."""
        self._gate = replace(self._gate, classes=classes)
        self.queries.use_gate(self._gate)
        self.publication.use_gate(self._gate)

    def _finish(self, one: PlannedSession, result: SegmentResult) -> None:
        session = one.session
        if one.bench is not None:
            one.bench.tokens.extend(one.append)
        if one.check is not None:
            if one.branches:
                self.verification.finish(one.check, result.branches[0])
            return
        if one.bench is not None:
            self._decoded(one, result)
            self._ready_later(one)
            return
        if one.second:
            assert session.second is not None
            session.second.resident += len(one.append)
            if session.second.complete:
                self.scheduler.lane_done(Lane.SECOND_SLAB, session.id)
            return
        if one.commit is not None and one.commit.late_only:
            one.commit.settle()
            self.scheduler.commit_done(one.commit)
            return
        reached = one.reaches_end or one.base is None
        session.resident += len(one.append)
        self._decoded(one, result)
        session.branches += [
            ResidentBranch(entry.tokens, branch.cell)
            for entry, branch in zip(one.riders, one.branches, strict=False)
        ]
        if one.commit is not None and reached:
            self._commit(one)
        elif one.base is not None and reached:
            if session.state is SessionState.EVICTED:
                session.move_to(session.settled_state())
                self.scheduler.add(Lane.LONE, session.id)
            self._ready_later(one)
        for work, logits in zip(one.queries, result.branches[len(one.riders) :], strict=True):
            self.queries.advance(work, session, logits)
        for work in one.refused:
            self.queries.refuse(work, question_too_long())

    def _decoded(self, one: PlannedSession, result: SegmentResult) -> None:
        for entry, logits in zip(one.riders, result.branches, strict=False):
            position = len(one.session.tokens) + len(entry.tokens)
            one.session.ready[entry.key] = ReadyDistribution.at(position, logits)
            one.session.owed.discard(entry.key)
        self.counters.prepositions_total += len(one.riders)

    def _ready_later(self, one: PlannedSession) -> None:
        """Decision points of the present state were decoded without a commit."""
        if one.riders and one.session.serving:
            keys = [entry.key for entry in one.riders]
            self.publication.added(one.session, self._by_key(one.riders), keys)
        self._evaluate(one.session, one.riders)

    def _commit(self, one: PlannedSession) -> None:
        """The live end moves, and with it every slot of the session (one write), then events, then batches."""
        session, commit = one.session, one.commit
        assert commit is not None
        was_rebuilding = session.state is SessionState.REBUILDING
        if not self.ingest.serves(session):
            session.move_to(SessionState.REBUILDING)
        else:
            session.move_to(session.settled_state() if one.base is not None else SessionState.EVICTED)
        if one.riders and session.serving:
            self.publication.committed(session, self._by_key(one.riders))
        else:
            self.publication.invalidated(session)
        self.counters.commits_total += 1
        if not was_rebuilding or commit.taken:  # a replay alone emits nothing
            self._emit(_committed(session))
            self._missed(session, [entry.key for entry in one.skipped], "no_room")
        session.owed = {entry.key for entry in one.deferred if entry.every_commit}
        self._evaluate(session, one.riders)
        commit.settle()
        self.scheduler.commit_done(commit)
        for entry in one.deferred:
            self.scheduler.add(Lane.STANDING if entry.kind is EntryKind.STANDING else Lane.LONE, session.id)
        if session.state is SessionState.FULL and session.second is None:
            self.scheduler.add(Lane.SECOND_SLAB, session.id)

    def _evaluate(self, session: Session, riders: list[Entry]) -> None:
        """Standing queries whose entry was decoded: record, and emit what their subscribers asked for."""
        questions = {entry.key for entry in riders if entry.kind is EntryKind.STANDING}
        if not questions:
            return
        self.budget.touch(session.id)
        for query in self.standing.matching(session.id):
            if query.question in questions:
                self._evaluate_query(query, session)

    def _missed(self, session: Session, keys: Collection[str], reason: str) -> None:
        """The present version is not evaluated for these questions: whoever asked for every commit is told."""
        for query in self.standing.matching(session.id) if keys else ():
            if query.on == "commit" and query.question in keys:
                self.counters.evaluations_missed_total += 1
                self._emit(build_missed(query, session, reason))

    def _evaluate_query(self, query: StandingQuery, session: Session) -> None:
        evaluation = build_evaluation(query, session, session.ready[query.question], self._certain)
        event = self.standing.evaluated(evaluation, query.on)
        if event is not None:
            self._emit(event)

    @staticmethod
    def _by_key(entries: Iterable[Entry]) -> dict[str, Entry]:
        return {entry.key: entry for entry in entries}


def _committed(session: Session) -> Committed:
    source = session.source
    return Committed(
        session=session.id,
        session_version=session.version,
        bars=len(session.region),
        topic=source.topic if source else None,
        partition=source.partition if source else None,
        offset=session.offset if source else None,
        event_time=event_time(session.event_time_us),
    )
