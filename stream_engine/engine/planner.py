"""From candidates to one step: which tokens of which session run, and where their cells lie. Ids only.

The planner only plans. It reads sessions, budget and queues, and changes none of them: what follows from a plan
happens where the state lives (``cells.py``, ``engine.py``, ``ingest/commit_records.py``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from stream_engine.config.engine import EngineSettings
from stream_engine.decision.entry import Entry, EntryKind, common_prefix
from stream_engine.engine.plan import CellCopy, Claim, Plan, PlannedQuery, PlannedSession
from stream_engine.engine.residence import Residence
from stream_engine.engine.riders import choose_riders
from stream_engine.engine.session_entries import SessionEntries
from stream_engine.model.forward.step import Branch
from stream_engine.session.cell_budget import CellBudget
from stream_engine.session.session import Session, SessionState
from stream_engine.state.scheduler import CheckWork, CommitWork, Lane, QueryWork, Scheduler, Selection

PLANNING_S = 0.02
"""CPU time in which the commits of one step are begun; the next step begins others. A commit without tokens takes
none of the step's room, and a question waits for all of them."""


class Planner:
    """Plans the engine's steps."""

    def __init__(
        self,
        settings: EngineSettings,
        scheduler: Scheduler,
        sessions: Mapping[str, Session],
        budget: CellBudget,
        residence: Residence,
        entries: SessionEntries,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._sessions = sessions
        self._budget = budget
        self._shape = budget.shape
        self._residence = residence
        self._entries = entries

    def plan(self, selection: Selection, plan: Plan) -> Iterator[CommitWork]:
        """Fills the plan. Yields each commit that it begins: its records have to be in the token log before the
        plan goes on, because only then it is known which tokens they are."""
        for work in selection.queries:
            yield from self._plan_query(plan, work, joined=bool(selection.commits))
        commits = selection.commits
        if not plan.sessions:
            commits = self._scheduler.next_commits()  # queries wait for the cells of commits in progress
        until = time.thread_time() + PLANNING_S
        for session_id in commits:
            if plan.room <= 0 or (plan.sessions and time.thread_time() > until):
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

    # --- commits -------------------------------------------------------------------------------------

    def _plan_commit(self, plan: Plan, session: Session) -> Iterator[CommitWork]:
        if self._scheduler.generating(session.id):
            return  # an answer of several tokens is being decoded on the present version
        commit = self._scheduler.commits[session.id]
        entries = self._entries.of(session)
        # A session that goes live after its replay has no news, and whole partitions of them do so at once.
        news = session.state is not SessionState.REBUILDING or bool(commit.records or commit.taken)
        residence = self._residence.find(
            plan, session, wanted=news and any(entry.demands_cells for entry in entries)
        )
        if residence is None and news and any(entry.every_commit for entry in entries):
            return  # all cells are at work: a later step evaluates what asked for every commit
        if not commit.started:
            owed = [entry for entry in entries if entry.key in session.owed]
            if owed and residence is not None:
                self._plan_alone(plan, self._residence.draft(plan, session, *residence), owed)
                if session.id in plan.sessions:
                    return  # its evaluation comes before the next version
            yield commit
        if residence is None or commit.late_only:
            plan.add(PlannedSession(session, None, commit=commit, deferred=entries))
            return
        planned = self._residence.draft(plan, session, *residence)
        planned.commit = commit
        self._residence.swap_in(plan, planned)
        planned.extend(plan.room)
        planned.scratch_end = planned.live_end
        plan.add(planned)
        if not planned.reaches_end:
            return
        fused = self._settings.preposition == "fused"
        riders = choose_riders(
            [entry for entry in entries if fused or entry.every_commit],
            headroom=self._residence.room(plan, planned),
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

    def _place_riders(self, plan: Plan, planned: PlannedSession, riders: tuple[Entry, ...]) -> None:
        found = self._residence.reach(
            plan, planned, planned.scratch_end + sum(len(entry.tokens) for entry in riders)
        )
        assert found, "riders were chosen for cells that are not there"
        for entry in riders:
            planned.ride(entry)
            plan.room -= len(entry.tokens)

    # --- background ----------------------------------------------------------------------------------

    def _plan_lone(self, plan: Plan, session_id: str, lane: Lane) -> None:
        """Entries left out of a commit, alone: Alg. 1 with its headroom check."""
        session = self._sessions[session_id]
        base = self._residence.base(plan, session)
        lone = lane is Lane.LONE
        due = [
            entry
            for entry in self._entries.of(session)
            if entry.key not in session.ready and (entry.kind is EntryKind.STANDING) is not lone
        ]
        evicted = session.state is SessionState.EVICTED or (session_id in plan.evicted and session.serving)
        residence: tuple[int, Claim | None] | None = None
        demanded = any(entry.demands_cells for entry in due)
        if due and not lone and evicted:
            residence = self._residence.find(plan, session, wanted=demanded)
        if residence is not None:
            pass
        elif demanded and evicted:
            return
        elif base is None or not session.current or not due:
            plan.finished.append((lane, session_id))
            if due and base is None:
                plan.refills.append(session_id)
            return
        else:
            residence = base, None
        if self._plan_alone(plan, self._residence.draft(plan, session, *residence), due):
            plan.finished.append((lane, session_id))

    def _plan_alone(self, plan: Plan, planned: PlannedSession, due: list[Entry]) -> bool:
        """Entries in a pass that commits nothing. True where none of them is left for another one."""
        planned.extend(plan.room)
        if planned.append:
            plan.add(planned)
        if not planned.reaches_end:
            return False
        headroom = self._residence.room(plan, planned)
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
        if planned.scratch_end + needed > self._shape.slab:
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
        start = max(session.scratch_end, session.resident)
        if base is not None and work.boundary <= session.resident and start + len(entry) <= self._shape.slab:
            planned = plan.add(self._residence.draft(plan, session, base, None))
            planned.check = work
            planned.branches.append(Branch(entry, start, sees=work.boundary))
            return
        planned = self._on_bench(plan, session, session.tokens[: work.boundary])
        planned.check = work
        if planned.live_end == work.boundary:
            planned.branches.append(Branch(entry, work.boundary))

    def _on_bench(self, plan: Plan, session: Session, log: list[int]) -> PlannedSession:
        """More of ``log`` comes onto the workbench, as much as the step has room for."""
        bench, shape = self._budget.bench, self._shape
        resident = bench.in_common(log)
        if resident < shape.prefix:
            plan.copies.append(CellCopy(shape.prefix_base, bench.base, shape.prefix))
            resident = shape.prefix
        append = tuple(log[resident : resident + plan.room])
        return plan.add(PlannedSession(session, bench.base, resident, bench=bench, append=append))

    def _plan_refill(self, plan: Plan, session_id: str) -> None:
        """What is due of a session without cells, in cells that are nobody's. What demands cells gets them
        elsewhere; an envelope is worth its cells only."""
        session = self._sessions[session_id]
        due = [
            entry
            for entry in self._entries.of(session)
            if entry.key not in session.ready and not entry.demands_cells and entry.kind is not EntryKind.ENVELOPE
        ]
        if not due or session.state is not SessionState.EVICTED:
            plan.finished.append((Lane.REFILL, session_id))
            return
        planned = self._on_bench(plan, session, session.tokens)
        if not planned.reaches_end:
            return
        planned.scratch_end = planned.live_end
        for entry in due:
            if planned.scratch_end + len(entry.tokens) > self._shape.bench:
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
        place = self._residence.second_slab(plan, session)
        if place is None:
            plan.finished.append((Lane.SECOND_SLAB, session_id))
            return
        slab, second = place
        append = tuple(second.tokens[second.resident : second.resident + plan.room])
        plan.add(PlannedSession(session, slab, second.resident, append=append, slab=second))

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
                residence = self._residence.find(plan, session, wanted=True)
                if residence is None:
                    return
                planned = self._residence.draft(plan, session, *residence)
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
        branch = self._query_branch(plan, planned, work)
        if branch is not None:
            planned.branches.append(branch)
            plan.room -= len(branch.tokens)

    def _longest_entry(self, planned: PlannedSession) -> int:
        """Tokens that an entry may have: what the slab has behind the live end, and what can be borrowed."""
        answer = planned.session.builder.profile.max_answer_tokens
        return self._shape.share - planned.live_end - answer + 1

    def _query_branch(self, plan: Plan, planned: PlannedSession, work: QueryWork) -> Branch | None:
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
        beside = bool(planned.branches) or self._scheduler.generating(session.id)
        if planned.scratch_end + length > self._shape.slab and not beside:
            planned.forget_branches()
            reused = 0
        if not self._residence.reach(plan, planned, planned.scratch_end + length):
            return None
        cell = planned.scratch_end
        planned.scratch_end += length
        if reused:
            plan.copies += planned.copies(source, cell, reused)
        planned.queries.append(PlannedQuery(work, cell, reused))
        return Branch(work.entry[reused:], cell + reused, reused, cell if reused else 0)
