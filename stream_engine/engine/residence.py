"""Which cells a plan counts on: slabs that change hands, extents that are lent. Nothing of it has happened yet."""

from __future__ import annotations

from stream_engine.engine.plan import CellCopy, Claim, Loan, Plan, PlannedSession
from stream_engine.model.forward.step import Borrowed
from stream_engine.session.cell_budget import CellBudget, Use
from stream_engine.session.session import SecondSlab, Session
from stream_engine.state.scheduler import Scheduler


class Residence:
    """Reads the budget for the planner."""

    def __init__(self, budget: CellBudget, scheduler: Scheduler) -> None:
        self._budget = budget
        self._scheduler = scheduler
        self.shape = budget.shape

    def base(self, plan: Plan, session: Session) -> int | None:
        return None if session.id in plan.evicted else self._budget.base_of(session.id)

    def find(self, plan: Plan, session: Session, wanted: bool) -> tuple[int, Claim | None] | None:
        """The session's base, and the claim by which ``draft`` gives it; None where it has no cells and there are
        none to spare (``wanted``: the least recently used session gives up its own)."""
        base = self.base(plan, session)
        if base is not None:
            return base, None
        claim = self._claim(plan, wanted)
        return (claim.base, claim) if claim is not None else None

    def _claim(self, plan: Plan, wanted: bool) -> Claim | None:
        claimed = sum(claim is not None and claim.evicted is None for _, claim in plan.uses)
        free = self._budget.free(after=claimed)
        if free is not None:
            return Claim(free, None)
        if not wanted:
            return None
        keep = self._scheduler.at_work() | plan.sessions.keys() | plan.evicted
        evicted = self._budget.least_used(keep)
        base = self._budget.base_of(evicted) if evicted is not None else None
        return Claim(base, evicted) if base is not None else None

    def draft(self, plan: Plan, session: Session, base: int, claim: Claim | None) -> PlannedSession:
        """The session as it stands; behind a claim, which is then in the plan, it has the frozen prefix only."""
        shape = self.shape
        if claim is not None:
            if claim.evicted is not None:
                plan.evicted.add(claim.evicted)
            plan.uses.append((session.id, claim))
            plan.copies.append(CellCopy(shape.prefix_base, claim.base, shape.prefix))
            return PlannedSession(session, base, shape.prefix, shape.prefix)
        lent = self._budget.lent(session.id, Use.BRANCHES)
        return PlannedSession(
            session=session,
            base=base,
            resident=session.resident,
            scratch_end=session.scratch_end,
            resumable=tuple(session.branches),
            borrowed=None if lent is None else Borrowed(shape.slab, lent),
        )

    # --- the pool ------------------------------------------------------------------------------------

    def _spare(self, plan: Plan, keep: int = 0) -> int | None:
        return self._budget.spare(after=len(plan.loans), keep=keep)

    def room(self, plan: Plan, planned: PlannedSession) -> int:
        """``B`` of Alg. 1: cells that entries may take behind the live end, with what can be borrowed."""
        can_borrow = planned.borrowed is not None or self._spare(plan) is not None
        return (self.shape.share if can_borrow else self.shape.slab) - planned.live_end

    def reach(self, plan: Plan, planned: PlannedSession, end: int) -> bool:
        """The session has cells up to offset ``end``, of the pool where its slab is too short; False where the
        pool has none to spare."""
        if end <= self.shape.slab or planned.borrowed is not None:
            return end <= self.shape.share
        base = self._spare(plan)
        if base is None or end > self.shape.share:
            return False
        plan.loans.append(Loan(planned.session.id, Use.BRANCHES, base))
        planned.borrowed = Borrowed(self.shape.slab, base)
        return True

    def second_slab(self, plan: Plan, session: Session) -> tuple[int, SecondSlab] | None:
        """Where the next region is made, and what is there of it; None where the pool has no cells for it, and
        the swap will be made when it is due."""
        slab = self._budget.lent(session.id, Use.SECOND_SLAB)
        if slab is None:
            slab = self._spare(plan, keep=self.shape.kept_for_branches)
            if slab is None:
                plan.unprepared += 1
                return None
            plan.loans.append(Loan(session.id, Use.SECOND_SLAB, slab))
        if session.second is not None:
            return slab, session.second
        plan.copies.append(CellCopy(self.shape.prefix_base, slab, self.shape.prefix))
        return slab, SecondSlab([*session.builder.prefix, *session.region.next_tokens()], self.shape.prefix)

    def swap_in(self, plan: Plan, planned: PlannedSession) -> None:
        """Window swap: where the second slab holds the new region's beginning, its cells become the live ones."""
        session, second = planned.session, planned.session.second
        if session.id in plan.evicted or second is None or planned.resident > self.shape.prefix:
            return
        planned.drops_second = True
        slab = self._budget.lent(session.id, Use.SECOND_SLAB)
        if slab is not None and second.complete and session.tokens[: second.resident] == second.tokens:
            assert planned.base is not None
            plan.copies.append(CellCopy(slab, planned.base, second.resident))
            planned.resident, planned.swapped = second.resident, True
