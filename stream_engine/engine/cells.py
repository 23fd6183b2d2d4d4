"""The cells of sessions: who has which, what is copied between them, and who gives up its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stream_engine.decision.entry import common_prefix
from stream_engine.engine.plan import Claim, Plan, PlannedSession
from stream_engine.messages.counters import EngineCounters
from stream_engine.model.forward.runner import Runner
from stream_engine.session.cell_budget import CellBudget, Use
from stream_engine.session.session import Session, SessionState
from stream_engine.state.partitions import PartitionTable


class Cells:
    """The budget says where a session's cells lie, the runner holds them."""

    def __init__(
        self,
        budget: CellBudget,
        runner: Runner,
        sessions: Mapping[str, Session],
        partitions: PartitionTable,
        counters: EngineCounters,
    ) -> None:
        self.budget = budget
        self._runner = runner
        self._sessions = sessions
        self._partitions = partitions
        self._counters = counters

    def make_ready(self, plan: Plan) -> None:
        """What a plan says of cells comes true: slabs change hands, extents are lent, cells are copied."""
        for session_id, claim in plan.uses:
            if claim is None:
                self.budget.touch(session_id)
            else:
                self._give(self._sessions[session_id], claim)
        for loan in plan.loans:
            self.budget.lend(loan.session, loan.use, loan.base)
        for planned in plan.sessions.values():
            self._set_out(planned)
        for copy in plan.copies:
            self._runner.copy(copy.source, copy.target, copy.count)

    def take_back(self, generating: Callable[[str], bool]) -> None:
        """Before a step is planned: what was borrowed for branches returns to the pool, but for answers of several
        tokens that are under way."""
        for session_id in self.budget.borrowers(Use.BRANCHES):
            if not generating(session_id):
                self._sessions[session_id].fold(self.budget.shape.slab)
                self.budget.give_back(session_id, Use.BRANCHES)

    def begun(self, session: Session) -> None:
        """A commit's records are in the log. Where they have undone its second slab, nobody needs the cells."""
        if session.second is None:
            self.budget.give_back(session.id, Use.SECOND_SLAB)

    def _give(self, session: Session, claim: Claim) -> None:
        if claim.evicted is not None:
            self._evict(self._sessions[claim.evicted])
        self.budget.give(session.id, claim.base)
        session.occupy(self.budget.shape.prefix)

    def _evict(self, session: Session) -> None:
        """The session's cells go to another one: tokens only from now on. What is ready stays so until its next
        change."""
        self.budget.release(session.id)
        session.lose_cells()
        served = self._partitions.serves(session.source)
        session.move_to(SessionState.EVICTED if served else SessionState.REBUILDING)
        self._counters.evictions_total += 1

    def _set_out(self, planned: PlannedSession) -> None:
        session = planned.session
        if planned.bench is not None:
            planned.bench.hold(session.tokens[: planned.resident])
            return
        if planned.forgets:
            session.forget_branches()
        if planned.base is None or planned.check is not None or planned.slab is not None:
            return
        if planned.drops_second:
            session.drop_second()
            self.budget.give_back(session.id, Use.SECOND_SLAB)
        if planned.swapped:
            session.occupy(planned.resident)
            self._counters.swaps_prepared_total += 1
        session.reserve(planned.scratch_end)
        for query in planned.queries:
            query.work.place(query.cell, query.reused)

    def continue_branch(self, session: Session, tokens: tuple[int, ...]) -> int:
        """Put the cells that a resident branch has of ``tokens`` at the session's live end, where the log goes on
        with them. Returns how many they are."""
        base = self.budget.base_of(session.id)
        if base is None or not session.current:
            return 0
        reused, source = 0, 0
        for branch in session.branches:
            common = common_prefix(branch.tokens, tokens)
            if reused < common <= self.budget.shape.slab - branch.cell:
                reused, source = common, branch.cell
        if reused and source != session.resident:
            self._runner.copy(base + source, base + session.resident, reused)
        return reused
