"""The engine: plan -> copy -> forward -> publish. One thread owns everything here that changes.

Messages come in through the methods, work happens in ``step``, and what is to be sent comes out of
``acknowledgements`` and the ``emit`` callback. No sockets, no Kafka, no HTTP: usable in-process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from stream_engine.answering.admission import Admission
from stream_engine.answering.evaluations import StandingEvaluation
from stream_engine.answering.full_path import FullPath
from stream_engine.answering.gate_control import GateControl
from stream_engine.answering.local_board import LocalBoard
from stream_engine.answering.promotion import PromotedQuestions
from stream_engine.answering.query_desk import QueryDesk
from stream_engine.answering.refusals import not_found, question_too_long, unsupported
from stream_engine.answering.registration import Registration
from stream_engine.answering.verification import VerificationDesk
from stream_engine.config.engine import EngineSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.decision.entry import Entry, EntryKind
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.engine.agentic import Turns
from stream_engine.engine.cells import Cells
from stream_engine.engine.integrity import check_integrity
from stream_engine.engine.plan import Plan, PlannedSession
from stream_engine.engine.planner import Planner
from stream_engine.engine.residence import Residence
from stream_engine.engine.session_entries import SessionEntries
from stream_engine.engine.sleeping import Sleeping
from stream_engine.ingest.commit_records import begin_commit
from stream_engine.ingest.ingest import Handover, Ingest
from stream_engine.messages import Asleep, Assign, Committed, ErrorReply, Event, Revoke, StandingPut, StandingQuery
from stream_engine.model.forward.runner import Runner, SegmentResult
from stream_engine.model.forward.step import Segment
from stream_engine.model.render.rendering import Builder
from stream_engine.questions.router import Router
from stream_engine.risk.monitor import RiskMonitor
from stream_engine.session.session import ResidentBranch, Session, SessionState
from stream_engine.state.engine_state import EngineState
from stream_engine.state.scheduler import CommitWork, Lane
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
        state: EngineState,
        emit: Callable[[Event], None] = lambda event: None,
        risk: RiskMonitor | None = None,
    ) -> None:
        self.settings = settings
        self.builder = builder
        self.router = Router(builder.profile)
        self.self_test_error: str | None = None
        self._next_self_test = 0.0
        self._runner = runner
        self._emit = emit

        self.state = state
        self.boot_id, self.counters = state.boot_id, state.counters
        self.sessions, self.standing = state.sessions, state.standing
        self.scheduler, self.budget, self.publication = state.scheduler, state.budget, state.publication

        self.ingest = Ingest(
            state.sessions,
            state.partitions,
            state.scheduler,
            state.publication,
            state.counters,
            settings.quiet_records,
        )
        self.sleeping = Sleeping(
            settings.sleep_after_s, state.sessions, self.ingest.dormancy, state.scheduler, state.publication
        )
        self.promoted = PromotedQuestions(
            settings, builder, state.publication, state.standing, state.scheduler, state.counters
        )
        self.gate_control = GateControl(
            risk or RiskMonitor(UNWATCHED, state.gate.now.classes), state.gate, state.publication, emit
        )
        self.verification = VerificationDesk(
            self.gate_control, builder, state.sessions, state.budget, state.scheduler
        )
        self._full_path = FullPath(builder, state.scheduler, state.gate, self.promoted, state.counters)
        self.queries = QueryDesk(
            Admission(self.router, state.sessions, state.partitions, self.sleeping, settings.max_queries),
            LocalBoard(state.sessions, state.partitions, state.publication, state.gate, builder.profile),
            self._full_path,
            self.promoted,
            self.verification,
            state.counters,
        )
        self._evaluations = StandingEvaluation(state.standing, state.budget, state.gate, state.counters, emit)
        self.registration = Registration(
            state.sessions,
            state.standing,
            state.scheduler,
            state.publication,
            self.promoted,
            self._evaluations,
        )
        self.entries = SessionEntries(settings, builder, state.standing, self.promoted)
        self._cells = Cells(state.budget, runner, state.sessions, state.partitions, state.counters)
        self._turns = Turns(
            state.sessions,
            self._cells,
            state.scheduler,
            state.publication,
            self._full_path,
            self._evaluations,
        )
        residence = Residence(state.budget, state.scheduler)
        self._planner = Planner(settings, state.scheduler, state.sessions, state.budget, residence, self.entries)

    # --- partitions and sessions ---------------------------------------------------------------------

    def assign(self, message: Assign) -> bool:
        """Take a partition; False when a newer generation owns it."""
        handover = self.ingest.assign(message)
        if handover is None:
            return False
        self._leave(handover)
        self.publication.applied(handover.partition)
        return True

    def revoke(self, message: Revoke) -> None:
        """Give a partition up: its sessions are no longer served from here."""
        handover = self.ingest.revoke(message)
        if handover is not None:
            self._leave(handover)
            self.publication.dropped(handover.partition.source)

    def _leave(self, handover: Handover) -> None:
        for session in handover.left:
            self._let_go(session)
        for session_id in (*(session.id for session in handover.left), *handover.asleep):
            self.standing.hand_over(session_id)

    def asleep(self, message: Asleep) -> None:
        """Sessions sleep from now on, or did before: those that are here are let go of as objects. What was told
        of them is kept."""
        for session in self.ingest.asleep(message):
            session.move_to(SessionState.DORMANT)
            self._let_go(session)
            self.ingest.let_go(session)
            self.standing.rest(session.id)

    def drop_sleeper(self, session_id: str) -> bool:
        """Delete a session that sleeps; False where there is none of that id."""
        found = self.ingest.sleeper_deleted(session_id)
        if found:
            self.standing.forget_session(session_id)
        return found

    def drop_session(self, session: Session) -> None:
        """Remove a session; queries that wait for it are refused. A Kafka-fed one lives again with its next
        record."""
        self._close(session)
        self.ingest.deleted(session)

    def _close(self, session: Session) -> None:
        self._let_go(session)
        self.standing.forget_session(session.id)

    def _let_go(self, session: Session) -> None:
        """Everything that is held for a session here; on the board it gives its slots back."""
        self.sleeping.forget(session.id)
        self.sessions.remove(session)
        work = self.scheduler.drop_session(session.id)
        if work is not None:
            work.give_up()
        for query in self.scheduler.queries_of(session.id):
            self._full_path.refuse(query, not_found(session.id))
        self.budget.release(session.id)
        self.publication.closed(session)
        self.promoted.forget_session(session.id)

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
        query = self.registration.register(request, route.key, route.question_class.name)
        self.ingest.dormancy.wake(query.session)  # by its id; a pattern wakes nobody
        return query

    def unregister(self, query_id: str) -> bool:
        """False where there is no such query."""
        return self.registration.unregister(query_id)

    # --- the loop ------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One step: plan, copy, forward, publish. False when there was nothing to run."""
        self._look_around()
        went_on = self.registration.go_on()
        self._cells.take_back(self.scheduler.generating)
        plan = self._plan()
        if plan is None:
            return went_on
        self._cells.make_ready(plan)
        for planned, result in self._forward(plan):
            self._finish(planned, result)
        return True

    def _look_around(self) -> None:
        """Time has passed: queries that waited, questions that cooled, checks that can no longer be made."""
        self.publication.heartbeat()
        self.queries.retry_waiting()
        self.promoted.look(self.sessions)
        self.sleeping.look()
        if self.scheduler.in_background:
            self.verification.prune()

    def _plan(self) -> Plan | None:
        """The next step; None when nothing can run."""
        while (selection := self.scheduler.select()) is not None:
            plan = Plan(self.settings.step_tokens)
            for commit in self._planner.plan(selection, plan):
                session = self.sessions[commit.session]
                begin_commit(commit, session, self.counters)
                self._cells.begun(session)
                self.ingest.changed(session)
                self.scheduler.commit_begun(commit)
            self.counters.prepositions_skipped_total += plan.skipped
            self.counters.swaps_unprepared_total += plan.unprepared
            for lane, session_id in plan.finished:
                self.scheduler.lane_done(lane, session_id)
            for session_id in plan.refills:
                self.scheduler.add(Lane.REFILL, session_id)
            if plan.sessions or (plan.finished and selection.lane and self.scheduler.waiting(selection.lane)):
                return plan  # without a session it has cleared away what was over: others of the lane are next
            if selection.lane is None or self.scheduler.waiting(selection.lane):
                return None
            # Nothing of that lane was left to do: the next one's turn.
        return None

    def _forward(self, plan: Plan) -> Iterator[tuple[PlannedSession, SegmentResult]]:
        """All of the step in one pass over the weights."""
        self.publication.heartbeat()  # planning has applied the commits' records: that alone may take long
        parts = [(planned, planned.segment()) for planned in plan.sessions.values()]
        segments = [segment for _, segment in parts if segment is not None]
        started = time.perf_counter()
        results = iter(self._runner.run(segments) if segments else ())
        if segments:
            self.counters.step_seconds_total += time.perf_counter() - started
            self.counters.steps_total += 1
            self.counters.step_tokens_total += sum(segment.size for segment in segments)
        for planned, segment in parts:
            yield planned, next(results) if segment is not None else SegmentResult(())

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
            self.self_test_error = str(error)[:2000]  # some libraries tell whole traces
        self.gate_control.monitor.keep()
        if self.settings.check_integrity:
            self.check_integrity()

    def close(self) -> None:
        """The board is marked dead: readers refuse its slots at once. What the checks have found is written down
        first: after that another engine may serve this board."""
        self.gate_control.monitor.keep()
        self.publication.close()

    def check_integrity(self) -> None:
        """Cells = tokens = boundary, for every session; no extent overlaps another; and what is ready, here and on
        the board, is of the session's present log. Raises AssertionError with what differs."""
        check_integrity(
            self.sessions.values(), self.budget, self.scheduler, self.publication, self.entries, self.registration
        )
        self.ingest.dormancy.check_integrity()

    def _finish(self, planned: PlannedSession, result: SegmentResult) -> None:
        """What the pass has computed becomes the session's."""
        if planned.bench is not None:
            planned.bench.tokens.extend(planned.append)
        if planned.check is not None:
            if planned.branches:
                self.verification.finish(planned.check, result.branches[0])
        elif planned.bench is not None:
            self._decoded(planned, result)
            self._ready_later(planned)
        elif planned.slab is not None:
            planned.session.fill_second(planned.slab, len(planned.append))
            if planned.slab.complete:
                self.scheduler.lane_done(Lane.SECOND_SLAB, planned.session.id)
        elif planned.commit is not None and planned.commit.late_only:
            planned.commit.settle()
            self.scheduler.commit_done(planned.commit)
        else:
            self._advance(planned, result)

    def _advance(self, planned: PlannedSession, result: SegmentResult) -> None:
        session, reached = planned.session, planned.reaches_end or planned.base is None
        session.advance(len(planned.append))
        self._decoded(planned, result)
        for entry, branch in zip(planned.riders, planned.branches, strict=False):
            session.keep_branch(ResidentBranch(entry.tokens, branch.cell))
        if planned.commit is not None and reached:
            self._commit(planned, planned.commit)
        elif planned.base is not None and reached:
            if session.state is SessionState.EVICTED:
                session.move_to(session.settled_state())
                self.scheduler.add(Lane.STANDING, session.id)  # the workbench is for those without cells
                self.scheduler.add(Lane.LONE, session.id)
            self._ready_later(planned)
        for query, logits in zip(planned.queries, result.branches[len(planned.riders) :], strict=True):
            self._full_path.advance(query.work, session, logits)
        for work in planned.refused:
            self._full_path.refuse(work, question_too_long())

    def _decoded(self, planned: PlannedSession, result: SegmentResult) -> None:
        for entry, logits in zip(planned.riders, result.branches, strict=False):
            position = len(planned.session.tokens) + len(entry.tokens)
            planned.session.decoded(entry.key, ReadyDistribution.at(position, logits))
        self.counters.prepositions_total += len(planned.riders)

    def _ready_later(self, planned: PlannedSession) -> None:
        """Decision points of the present state were decoded without a commit."""
        if planned.riders and planned.session.serving:
            keys = [entry.key for entry in planned.riders]
            self.publication.added(planned.session, self._by_key(planned.riders), keys)
        self._evaluations.decoded(planned.session, planned.riders)

    def _commit(self, planned: PlannedSession, commit: CommitWork) -> None:
        """The live end moves, and with it every slot of the session (one write), then events, then batches."""
        session = planned.session
        self.sleeping.touch(session)
        was_rebuilding = session.state is SessionState.REBUILDING
        if not self.state.partitions.serves(session.source):
            session.move_to(SessionState.REBUILDING)
        else:
            session.move_to(session.settled_state() if planned.base is not None else SessionState.EVICTED)
        if planned.riders and session.serving:
            self.publication.committed(session, self._by_key(planned.riders))
        else:
            self.publication.invalidated(session)
        self.counters.commits_total += 1
        if not was_rebuilding or commit.taken:  # a replay alone emits nothing
            self._emit(_committed(session))
            self._evaluations.missed(session, [entry.key for entry in planned.skipped], "no_room")
        self._evaluations.put_off(session, planned.deferred)
        session.owe(entry.key for entry in planned.deferred if entry.every_commit)
        if planned.gave_way is not None:
            session.put_off(planned.gave_way)
        self._evaluations.decoded(session, planned.riders)
        commit.settle()
        self.scheduler.commit_done(commit)
        for entry in planned.deferred:
            self.scheduler.add(Lane.STANDING if entry.kind is EntryKind.STANDING else Lane.LONE, session.id)
        if session.state is SessionState.FULL and session.second is None:
            self.scheduler.add(Lane.SECOND_SLAB, session.id)

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
