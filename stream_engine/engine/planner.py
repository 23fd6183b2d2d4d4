"""From candidates to one step: which tokens of which session run, and where their cells lie. Ids only.

The planner only plans. It reads sessions, budget and queues, and changes none of them: what follows from a plan
happens where the state lives (``cells.py``, ``engine.py``, ``ingest/commit_records.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stream_engine.config.engine import EngineSettings
from stream_engine.decision.entry import Entry, EntryKind, common_prefix
from stream_engine.engine.plan import CellCopy, Claim, Plan, PlannedQuery, PlannedSession
from stream_engine.engine.riders import choose_riders
from stream_engine.engine.session_entries import SessionEntries
from stream_engine.model.forward.step import Branch
from stream_engine.session.cell_budget import CellBudget
from stream_engine.session.session import SecondSlab, Session, SessionState
from stream_engine.state.scheduler import CheckWork, CommitWork, Lane, QueryWork, Scheduler, Selection


class Planner:
    """Plans the engine's steps."""

    def __init__(
        self,
        settings: EngineSettings,
        scheduler: Scheduler,
        sessions: Mapping[str, Session],
        budget: CellBudget,
        entries: SessionEntries,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._sessions = sessions
        self._budget = budget
        self._entries = entries

    def plan(self, selection: Selection, plan: Plan) -> Iterator[CommitWork]:
        """Fills the plan. Yields each commit that it begins: its records have to be in the token log before the
        plan goes on, because only then it is known which tokens they are."""
        for work in selection.queries:
            yield from self._plan_query(plan, work, joined=bool(selection.commits))
        commits = selection.commits
        if not plan.sessions:
            commits = tuple(self._scheduler.commits)  # queries wait for the cells of commits in progress
        for session_id in commits:
            if plan.room <= 0:
                break
            if session_id not in plan.sessions:
                yield from self._plan_commit(plan, self._sessions[session_id])
        for session_id in selection.sessions:
            if plan.room <= 0:
                break
            if selection.lane is Lane.SECOND_SLAB:
                self._plan_second_slab(plan, session_id)
            elif selection.lane is Lane.REFILL:
                if not plan.sessions:  # there is one workbench
                    self._plan_refill(plan, session_id)
            elif selection.lane is not None:
                self._plan_lone(plan, session_id, selection.lane)
        if selection.check is not None:
            self._plan_check(plan, selection.check)

    # --- cells ---------------------------------------------------------------------------------------

    def _base(self, plan: Plan, session: Session) -> int | None:
        return None if session.id in plan.evicted else self._budget.base_of(session.id)

    def _residence(self, plan: Plan, session: Session, wanted: bool) -> tuple[int, Claim | None] | None:
        """The session's base, and the claim by which ``_draft`` gives it; None where it has no cells and there are
        none to spare (``wanted``: the least recently used session gives up its own)."""
        base = self._base(plan, session)
        if base is not None:
            return base, None
        claim = self._claim(plan, wanted)
        return (claim.base, claim) if claim is not None else None

    def _claim(self, plan: Plan, wanted: bool) -> Claim | None:
        claimed = {claim.base for _, claim in plan.uses if claim is not None}
        free = next((base for base in self._budget.free if base not in claimed), None)
        if free is not None:
            return Claim(free, None)
        if not wanted:
            return None
        keep = {name for name, work in self._scheduler.commits.items() if work.started}
        keep |= {work.query.session for work in self._scheduler.queries if work.generated}
        keep |= plan.sessions.keys() | plan.evicted
        evicted = next((name for name in self._budget.resident if name not in keep), None)
        base = self._budget.base_of(evicted) if evicted is not None else None
        return Claim(base, evicted) if base is not None else None

    def _draft(self, plan: Plan, session: Session, base: int, claim: Claim | None) -> PlannedSession:
        """The session as it stands; behind a claim, which is then in the plan, it has the frozen prefix only."""
        if claim is not None:
            if claim.evicted is not None:
                plan.evicted.add(claim.evicted)
            plan.uses.append((session.id, claim))
            shape = self._budget.shape
            plan.copies.append(CellCopy(shape.prefix_base, claim.base, shape.prefix))
            return PlannedSession(session, base, shape.prefix, shape.prefix)
        return PlannedSession(session, base, session.resident, session.scratch_end, tuple(session.branches))

    # --- commits -------------------------------------------------------------------------------------

    def _plan_commit(self, plan: Plan, session: Session) -> Iterator[CommitWork]:
        if self._scheduler.generating(session.id):
            return  # an answer of several tokens is being decoded on the present version
        commit = self._scheduler.commits[session.id]
        entries = self._entries.of(session)
        wanted = any(entry.kind is EntryKind.STANDING for entry in entries)
        residence = self._residence(plan, session, wanted)
        if residence is None and any(entry.every_commit for entry in entries):
            return  # all cells are at work: a later step evaluates what asked for every commit
        if not commit.started:
            owed = [entry for entry in entries if entry.key in session.owed]
            if owed and residence is not None:
                self._plan_alone(plan, self._draft(plan, session, *residence), owed)
                if session.id in plan.sessions:
                    return  # its evaluation comes before the next version
            yield commit
        if residence is None or commit.late_only:
            plan.add(PlannedSession(session, None, commit=commit, deferred=entries))
            return
        planned = self._draft(plan, session, *residence)
        planned.commit = commit
        self._swap_in(plan, planned)
        planned.extend(plan.room)
        planned.scratch_end = planned.live_end
        plan.add(planned)
        if not planned.reaches_end:
            return
        fused = self._settings.preposition == "fused"
        riders = choose_riders(
            [entry for entry in entries if fused or entry.every_commit],
            headroom=self._budget.shape.headroom(planned.live_end),
            step_room=plan.room,
            query_waits=bool(self._scheduler.query_count),
            more_queued=bool(commit.records),
            deferrals=session.deferrals,
            max_deferrals=self._settings.max_deferrals,
        )
        plan.skipped += len(riders.skipped)
        alone = [entry for entry in entries if not (fused or entry.every_commit)]
        planned.deferred, planned.skipped = (*riders.deferred, *alone), riders.skipped
        planned.gave_way = riders.gave_way
        self._place_riders(plan, planned, riders.riding)

    def _swap_in(self, plan: Plan, planned: PlannedSession) -> None:
        """Window swap: where the second slab holds the new region's beginning, it becomes the live one."""
        session, second, shape = planned.session, planned.session.second, self._budget.shape
        if session.id in plan.evicted or second is None or planned.resident > shape.prefix:
            return
        planned.drops_second = True
        if second.complete and session.tokens[: second.resident] == second.tokens:
            assert planned.base is not None
            slab = planned.base + shape.share - shape.reserve
            plan.copies.append(CellCopy(slab, planned.base, second.resident))
            planned.resident, planned.swapped = second.resident, True

    def _place_riders(self, plan: Plan, planned: PlannedSession, riders: tuple[Entry, ...]) -> None:
        for entry in riders:
            planned.ride(entry)
            plan.room -= len(entry.tokens)

    # --- background ----------------------------------------------------------------------------------

    def _plan_lone(self, plan: Plan, session_id: str, lane: Lane) -> None:
        """Entries left out of a commit, alone: Alg. 1 with its headroom check."""
        session = self._sessions[session_id]
        base = self._base(plan, session)
        lone = lane is Lane.LONE
        due = [
            entry
            for entry in self._entries.of(session)
            if entry.key not in session.ready and (entry.kind is EntryKind.STANDING) is not lone
        ]
        evicted = session.state is SessionState.EVICTED or (session_id in plan.evicted and session.serving)
        residence: tuple[int, Claim | None] | None
        if due and not lone and evicted:
            # A standing query is a demand, as a question is.
            residence = self._residence(plan, session, wanted=True)
            if residence is None:
                return
        elif base is None or not session.current or not due:
            plan.finished.append((lane, session_id))
            if due and base is None:
                plan.refills.append(session_id)
            return
        else:
            residence = base, None
        if self._plan_alone(plan, self._draft(plan, session, *residence), due):
            plan.finished.append((lane, session_id))

    def _plan_alone(self, plan: Plan, planned: PlannedSession, due: list[Entry]) -> bool:
        """Entries in a pass that commits nothing. True where none of them is left for another one."""
        planned.extend(plan.room)
        if planned.append:
            plan.add(planned)
        if not planned.reaches_end:
            return False
        headroom = self._budget.shape.headroom(planned.live_end)
        riders = choose_riders(
            due,
            headroom=headroom,
            # Alone in its step an entry may be longer than the bound; else it would wait forever.
            step_room=plan.room if plan.sessions else max(plan.room, len(due[0].tokens)),
            query_waits=False,
            more_queued=False,
            deferrals=0,
            max_deferrals=1,
        )
        plan.skipped += len(riders.skipped)
        if not riders.riding:
            return not riders.deferred
        needed = sum(len(entry.tokens) for entry in riders.riding)
        if planned.scratch_end + needed > planned.live_end + headroom:
            planned.forget_branches()
        planned.deferred = riders.deferred
        if not planned.append:
            plan.add(planned)
        self._place_riders(plan, planned, riders.riding)
        return not riders.deferred

    def _plan_check(self, plan: Plan, work: CheckWork) -> None:
        """The full path of an earlier boundary, on the workbench where that is not resident. Its cells are free
        again after the step, so an answer of several tokens is computed from the entry's first one each time."""
        session = self._sessions[work.check.session]
        entry = work.entry + work.generated
        base = self._budget.base_of(session.id)
        if base is not None and work.boundary <= session.resident:
            planned = plan.add(self._draft(plan, session, base, None))
            planned.check = work
            planned.branches.append(Branch(entry, max(session.scratch_end, session.resident), sees=work.boundary))
            return
        planned = self._on_bench(plan, session, session.tokens[: work.boundary])
        planned.check = work
        if planned.live_end == work.boundary:
            planned.branches.append(Branch(entry, work.boundary))

    def _on_bench(self, plan: Plan, session: Session, log: list[int]) -> PlannedSession:
        """More of ``log`` comes onto the workbench, as much as the step has room for."""
        bench, shape = self._budget.bench, self._budget.shape
        resident = bench.in_common(log)
        if resident < shape.prefix:
            plan.copies.append(CellCopy(shape.prefix_base, bench.base, shape.prefix))
            resident = shape.prefix
        append = tuple(log[resident : resident + plan.room])
        return plan.add(PlannedSession(session, bench.base, resident, bench=bench, append=append))

    def _plan_refill(self, plan: Plan, session_id: str) -> None:
        """What is due of a session without cells, in cells that are nobody's. A standing query is a demand and
        gets cells for it; an envelope is worth its cells only."""
        session = self._sessions[session_id]
        elsewhere = (EntryKind.STANDING, EntryKind.ENVELOPE)
        due = [e for e in self._entries.of(session) if e.key not in session.ready and e.kind not in elsewhere]
        if not due or session.state is not SessionState.EVICTED:
            plan.finished.append((Lane.REFILL, session_id))
            return
        planned = self._on_bench(plan, session, session.tokens)
        if not planned.reaches_end:
            return
        planned.scratch_end = planned.live_end
        for entry in due:
            if planned.scratch_end + len(entry.tokens) > self._budget.shape.bench:
                planned.skipped = (*planned.skipped, entry)
            else:
                planned.ride(entry)
        if not planned.riders or not planned.skipped:
            plan.finished.append((Lane.REFILL, session_id))
            plan.skipped += len(planned.skipped)

    def _plan_second_slab(self, plan: Plan, session_id: str) -> None:
        session = self._sessions[session_id]
        base = self._budget.base_of(session_id)
        if base is None or not session.region.full or not session.current:
            plan.finished.append((Lane.SECOND_SLAB, session_id))
            return
        shape = self._budget.shape
        slab = base + shape.share - shape.reserve
        second = session.second
        if second is None:
            second = SecondSlab([*session.builder.prefix, *session.region.next_tokens()], shape.prefix)
            plan.copies.append(CellCopy(shape.prefix_base, slab, shape.prefix))
        append = tuple(second.tokens[second.resident : second.resident + plan.room])
        planned = plan.add(PlannedSession(session, slab, second.resident, append=append, slab=second))
        planned.forgets = session.second is None and session.scratch_end > shape.share - shape.reserve

    # --- queries -------------------------------------------------------------------------------------

    def _plan_query(self, plan: Plan, work: QueryWork, joined: bool) -> Iterator[CommitWork]:
        """``joined``: it is the commits' turn to join the queries' step."""
        session = self._sessions[work.query.session]
        planned = plan.sessions.get(session.id)
        if planned is None:
            if plan.room <= 0:
                return
            commit = self._scheduler.commits.get(session.id)
            if commit is not None and (commit.started or joined):
                yield from self._plan_commit(plan, session)  # half a commit is no state to answer on
                planned = plan.sessions.get(session.id)
                if planned is None and commit.started:
                    return
            if planned is None:
                residence = self._residence(plan, session, wanted=True)
                if residence is None:
                    return
                planned = self._draft(plan, session, *residence)
                planned.extend(plan.room)
                plan.add(planned)
        if planned.base is None or not planned.reaches_end:
            return
        first = len(plan.sessions) == 1 and not planned.branches
        if len(work.entry) > plan.room and not first and not work.generated:
            return
        plan.uses.append((session.id, None))
        if len(work.entry) > self._longest_entry(planned):
            planned.refused.append(work)
            return
        branch = self._query_branch(plan, planned, planned.base, work)
        if branch is not None:
            planned.branches.append(branch)
            plan.room -= len(branch.tokens)

    def _longest_entry(self, planned: PlannedSession) -> int:
        """Tokens that an entry may have: all of the session's share behind the live end."""
        answer = planned.session.builder.profile.max_answer_tokens
        return self._budget.shape.share - planned.live_end - answer + 1

    def _query_branch(self, plan: Plan, planned: PlannedSession, base: int, work: QueryWork) -> Branch | None:
        """Resume at the longest common prefix of the realised entry and any resident branch (Eq. 5), or run
        the whole entry (Eq. 2). None when other branches of this step hold the cells it needs."""
        session = planned.session
        if work.generated:
            assert work.cell is not None
            planned.queries.append(PlannedQuery(work, work.cell, work.reused))
            return Branch((work.generated[-1],), work.cell + work.computed, work.computed, work.cell)
        reused, source = 0, 0
        if not planned.append:
            for resident in planned.resumable:
                # The last token always runs: its logits are the answer.
                common = min(common_prefix(resident.tokens, work.entry), len(work.entry) - 1)
                if common > reused:
                    reused, source = common, resident.cell
        length = len(work.entry) + session.builder.profile.max_answer_tokens - 1
        shape = self._budget.shape
        if planned.scratch_end + length > shape.share - shape.reserve:
            if planned.branches or self._scheduler.generating(session.id):
                return None
            planned.forget_branches()
            reused = 0
            if planned.live_end + length > shape.share - shape.reserve:
                planned.drops_second = True  # the reserve serves a query before it serves the next swap
        cell = planned.scratch_end
        planned.scratch_end += length
        if reused:
            plan.copies.append(CellCopy(base + source, base + cell, reused))
        planned.queries.append(PlannedQuery(work, cell, reused))
        return Branch(work.entry[reused:], cell + reused, reused, cell if reused else 0)
