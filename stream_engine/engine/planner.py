"""From candidates to one step: which tokens of which session run, and where their cells lie. Ids only.

Planning applies a commit's records to the token log; the session's live state moves only when the step has
run (``engine.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stream_engine.config import EngineSettings
from stream_engine.decision.entry import Entry, EntryKind, common_prefix
from stream_engine.engine.cells import Cells
from stream_engine.engine.riders import choose_riders
from stream_engine.engine.session_entries import SessionEntries
from stream_engine.messages import Rejected
from stream_engine.messages.counters import EngineCounters
from stream_engine.model.forward.step import Branch, Segment
from stream_engine.session.cell_budget import CellBudget, Workbench
from stream_engine.session.session import SecondSlab, Session, SessionState
from stream_engine.state.scheduler import CheckWork, CommitWork, Lane, QueryWork, Scheduler, Selection
from stream_engine.util.timestamps import rfc3339

NAMED_LATE_BARS = 10
"""Bars of one record that its rejection names: it may hold thousands, and a message's texts have a bound."""


@dataclass(slots=True)
class PlannedSession:
    """One session's part of a step. ``base`` is None for a commit that runs no tokens (tokens-only session).
    ``commit`` is set when this step begins or continues one; ``second`` when the segment fills the second
    slab instead of the live one. ``refused`` are queries whose entry is too long for the session's share. With a
    ``deferred`` entries run alone later, ``skipped`` ones not at all at this version. With a
    ``check`` the one branch is that of an earlier boundary, and nothing of the session changes. On the ``bench``
    lies a session without cells: only what becomes ready is its own."""

    session: Session
    base: int | None
    append: tuple[int, ...] = ()
    commit: CommitWork | None = None
    second: bool = False
    riders: list[Entry] = field(default_factory=list)
    deferred: tuple[Entry, ...] = ()
    skipped: tuple[Entry, ...] = ()
    queries: list[QueryWork] = field(default_factory=list)
    refused: list[QueryWork] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    check: CheckWork | None = None
    bench: Workbench | None = None

    @property
    def resident(self) -> int:
        """Tokens that are in the cells from ``base`` on before the step."""
        if self.bench is not None:
            return len(self.bench.tokens)
        if self.second:
            assert self.session.second is not None
            return self.session.second.resident
        return self.session.resident

    @property
    def reaches_end(self) -> bool:
        """After this step every token of the log is resident."""
        return self.resident + len(self.append) == len(self.session.tokens)

    def segment(self) -> Segment | None:
        if self.base is None or not (self.append or self.branches):
            return None
        return Segment(self.base, self.resident, self.append, tuple(self.branches))


@dataclass(slots=True)
class _Step:
    room: int
    planned: dict[str, PlannedSession] = field(default_factory=dict)

    def add(self, planned: PlannedSession) -> PlannedSession:
        self.planned[planned.session.id] = planned
        self.room -= len(planned.append)
        return planned


class Planner:
    """Plans the engine's steps."""

    def __init__(
        self,
        settings: EngineSettings,
        scheduler: Scheduler,
        sessions: Mapping[str, Session],
        budget: CellBudget,
        cells: Cells,
        entries: SessionEntries,
        counters: EngineCounters,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._sessions = sessions
        self._budget = budget
        self._cells = cells
        self._entries = entries
        self._counters = counters

    def plan(self) -> list[PlannedSession]:
        """The next step; empty when nothing can run."""
        while (selection := self._scheduler.select()) is not None:
            planned = self._plan(selection)
            if planned or selection.lane is None or self._scheduler.waiting(selection.lane):
                return planned
            # Nothing of that lane was left to do: the next one's turn.
        return []

    def _plan(self, selection: Selection) -> list[PlannedSession]:
        step = _Step(self._settings.step_tokens)
        for work in selection.queries:
            self._plan_query(step, work, joined=bool(selection.commits))
        commits = selection.commits
        if not step.planned:
            commits = tuple(self._scheduler.commits)  # queries wait for the cells of commits in progress
        for session_id in commits:
            if step.room <= 0:
                break
            if session_id not in step.planned:
                self._plan_commit(step, self._sessions[session_id])
        for session_id in selection.sessions:
            if step.room <= 0:
                break
            if selection.lane is Lane.SECOND_SLAB:
                self._plan_second_slab(step, session_id)
            elif selection.lane is Lane.REFILL:
                if not step.planned:  # there is one workbench
                    self._plan_refill(step, session_id)
            elif selection.lane is not None:
                self._plan_lone(step, session_id, selection.lane)
        if selection.check is not None:
            self._plan_check(step, selection.check)
        return list(step.planned.values())

    def _plan_commit(self, step: _Step, session: Session) -> None:
        if self._scheduler.generating(session.id):
            return  # an answer of several tokens is being decoded on the present version
        commit = self._scheduler.commits[session.id]
        entries = self._entries.of(session)
        wanted = any(entry.kind is EntryKind.STANDING for entry in entries)
        base = self._residence(step, session, wanted)
        if base is None and any(entry.every_commit for entry in entries):
            return  # all cells are at work: a later step evaluates what asked for every commit
        if not commit.started:
            owed = [entry for entry in entries if entry.key in session.owed]
            if owed and base is not None:
                self._plan_alone(step, session, base, owed)
                if session.id in step.planned:
                    return  # its evaluation comes before the next version
            self._take(session, commit)
        if base is None or commit.late_only:
            step.add(PlannedSession(session, None, commit=commit, deferred=entries))
            return
        self._swap_in(session, base)
        append = tuple(session.tokens[session.resident : session.resident + step.room])
        planned = step.add(PlannedSession(session, base, append, commit))
        live_end = session.resident + len(append)
        session.scratch_end = live_end
        if not planned.reaches_end:
            return
        fused = self._settings.preposition == "fused"
        riders = choose_riders(
            [entry for entry in entries if fused or entry.every_commit],
            headroom=self._budget.shape.headroom(live_end),
            step_room=step.room,
            query_waits=bool(self._scheduler.query_count),
            more_queued=bool(commit.records),
            deferrals=session.deferrals,
            max_deferrals=self._settings.max_deferrals,
        )
        self._count_skips(riders.skipped)
        session.deferrals = session.deferrals + 1 if riders.gave_way else 0
        alone = [entry for entry in entries if not (fused or entry.every_commit)]
        planned.deferred, planned.skipped = (*riders.deferred, *alone), riders.skipped
        self._place_riders(step, planned, riders.riding)

    def _take(self, session: Session, commit: CommitWork) -> None:
        before, swaps, version = session.resident, session.swaps, session.version
        for record, batch in commit.begin():
            change = session.apply(record)
            if change.late:
                times = ", ".join(rfc3339(stored.bar.time_us) for stored in change.late[:NAMED_LATE_BARS])
                more = f" and {unnamed} others" if (unnamed := len(change.late) - NAMED_LATE_BARS) > 0 else ""
                detail = f"older than the region's first bar: bar time {times}{more}"
                batch.rejected.append(Rejected(record.offset, "late", detail))
                batch.late += len(change.late) == len(record.bars)
                self._counters.late_bars_total += len(change.late)
            self._counters.gaps_total += change.gaps
            self._counters.bars_total += len(record.bars) - len(change.late)
        self._counters.swaps_total += session.swaps - swaps
        commit.late_only = bool(commit.taken) and version == session.version and session.serving
        if not commit.late_only:
            session.invalidate()
        if self._budget.shape.prefix < session.resident < before:
            session.second = None  # a correction inside the region: the second slab holds the old bar

    def _residence(self, step: _Step, session: Session, wanted: bool) -> int | None:
        """The session's base, with at least the frozen prefix resident; None where it has no cells and there
        are none to spare (``wanted``: the least recently used session gives up its own)."""
        base = self._budget.base_of(session.id)
        if base is not None:
            return base
        if not (wanted or self._budget.has_free):
            return None
        busy = {name for name, work in self._scheduler.commits.items() if work.started}
        busy |= {work.query.session for work in self._scheduler.queries if work.generated}
        acquired = self._budget.acquire(session.id, keep=busy | step.planned.keys())
        if acquired is None:
            return None
        base, evicted = acquired
        if evicted is not None:
            self._cells.evict(evicted)
        shape = self._budget.shape
        self._cells.copy(shape.prefix_base, base, shape.prefix)
        session.resident = shape.prefix
        session.forget_branches()
        return base

    def _swap_in(self, session: Session, base: int) -> None:
        """Window swap: where the second slab holds the new region's beginning, it becomes the live one."""
        second = session.second
        if second is None or session.resident > self._budget.shape.prefix:
            return
        session.second = None
        if second.complete and session.tokens[: second.resident] == second.tokens:
            shape = self._budget.shape
            self._cells.copy(base + shape.share - shape.reserve, base, second.resident)
            session.resident = second.resident
            self._counters.swaps_prepared_total += 1

    def _place_riders(self, step: _Step, planned: PlannedSession, riders: tuple[Entry, ...]) -> None:
        for entry in riders:
            planned.riders.append(entry)
            planned.branches.append(Branch(entry.tokens, planned.session.scratch_end))
            planned.session.scratch_end += len(entry.tokens)
            step.room -= len(entry.tokens)

    def _plan_lone(self, step: _Step, session_id: str, lane: Lane) -> None:
        """Entries left out of a commit, alone: Alg. 1 with its headroom check."""
        session = self._sessions[session_id]
        base = self._budget.base_of(session_id)
        lone = lane is Lane.LONE
        due = [
            entry
            for entry in self._entries.of(session)
            if entry.key not in session.ready and (entry.kind is EntryKind.STANDING) is not lone
        ]
        if due and not lone and session.state is SessionState.EVICTED:
            base = self._residence(step, session, wanted=True)  # a standing query is a demand, as a question is
            if base is None:
                return
        elif base is None or not session.current or not due:
            self._scheduler.lane_done(lane, session_id)
            if due and base is None:
                self._scheduler.add(Lane.REFILL, session_id)
            return
        if self._plan_alone(step, session, base, due):
            self._scheduler.lane_done(lane, session_id)

    def _plan_alone(self, step: _Step, session: Session, base: int, due: list[Entry]) -> bool:
        """Entries in a pass that commits nothing. True where none of them is left for another one."""
        append = tuple(session.tokens[session.resident : session.resident + step.room])
        planned = PlannedSession(session, base, append)
        live_end = session.resident + len(append)
        if append:
            session.scratch_end = live_end
            step.add(planned)
        if not planned.reaches_end:
            return False
        headroom = self._budget.shape.headroom(live_end)
        riders = choose_riders(
            due,
            headroom=headroom,
            # Alone in its step an entry may be longer than the bound; else it would wait forever.
            step_room=step.room if step.planned else max(step.room, len(due[0].tokens)),
            query_waits=False,
            more_queued=False,
            deferrals=0,
            max_deferrals=1,
        )
        self._count_skips(riders.skipped)
        if not riders.riding:
            return not riders.deferred
        needed = sum(len(entry.tokens) for entry in riders.riding)
        if session.scratch_end + needed > live_end + headroom:
            session.forget_branches()
        planned.deferred = riders.deferred
        if not append:
            step.add(planned)
        self._place_riders(step, planned, riders.riding)
        return not riders.deferred

    def _plan_check(self, step: _Step, work: CheckWork) -> None:
        """The full path of an earlier boundary, on the workbench where that is not resident. Its cells are free
        again after the step, so an answer of several tokens is computed from the entry's first one each time."""
        session = self._sessions[work.check.session]
        entry = work.entry + work.generated
        if work.boundary <= session.resident:
            planned = step.add(PlannedSession(session, self._budget.base_of(session.id), check=work))
            planned.branches.append(Branch(entry, max(session.scratch_end, session.resident), sees=work.boundary))
            return
        planned = self._on_bench(step, session, session.tokens[: work.boundary])
        planned.check = work
        if planned.resident + len(planned.append) == work.boundary:
            planned.branches.append(Branch(entry, work.boundary))

    def _on_bench(self, step: _Step, session: Session, log: list[int]) -> PlannedSession:
        """More of ``log`` comes onto the workbench, as much as the step has room for."""
        bench, shape = self._budget.bench, self._budget.shape
        if bench.keep_common(log) < shape.prefix:
            self._cells.copy(shape.prefix_base, bench.base, shape.prefix)
            bench.tokens[:] = log[: shape.prefix]
        append = tuple(log[len(bench.tokens) : len(bench.tokens) + step.room])
        return step.add(PlannedSession(session, bench.base, append, bench=bench))

    def _plan_refill(self, step: _Step, session_id: str) -> None:
        """What is due of a session without cells, in cells that are nobody's. A standing query is a demand and
        gets cells for it; an envelope is worth its cells only."""
        session = self._sessions[session_id]
        elsewhere = (EntryKind.STANDING, EntryKind.ENVELOPE)
        due = [e for e in self._entries.of(session) if e.key not in session.ready and e.kind not in elsewhere]
        if not due or session.state is not SessionState.EVICTED:
            self._scheduler.lane_done(Lane.REFILL, session_id)
            return
        planned = self._on_bench(step, session, session.tokens)
        if not planned.reaches_end:
            return
        cell, live_end = len(session.tokens), len(session.tokens)
        for entry in due:
            if cell + len(entry.tokens) > self._budget.shape.bench:
                planned.skipped = (*planned.skipped, entry)
                continue
            planned.riders.append(entry)
            planned.branches.append(Branch(entry.tokens, cell))
            cell += len(entry.tokens)
        if cell == live_end or not planned.skipped:
            self._scheduler.lane_done(Lane.REFILL, session_id)
            self._count_skips(planned.skipped)

    def _plan_second_slab(self, step: _Step, session_id: str) -> None:
        session = self._sessions[session_id]
        base = self._budget.base_of(session_id)
        if base is None or not session.region.full or not session.current:
            self._scheduler.lane_done(Lane.SECOND_SLAB, session_id)
            return
        shape = self._budget.shape
        slab = base + shape.share - shape.reserve
        if session.second is None:
            if session.scratch_end > shape.share - shape.reserve:
                session.forget_branches()
            session.second = SecondSlab([*session.builder.prefix, *session.region.next_tokens()], shape.prefix)
            self._cells.copy(shape.prefix_base, slab, shape.prefix)
        second = session.second
        append = tuple(second.tokens[second.resident : second.resident + step.room])
        step.add(PlannedSession(session, slab, append, second=True))

    def _plan_query(self, step: _Step, work: QueryWork, joined: bool) -> None:
        """``joined``: it is the commits' turn to join the queries' step."""
        session = self._sessions[work.query.session]
        planned = step.planned.get(session.id)
        if planned is None:
            if step.room <= 0:
                return
            commit = self._scheduler.commits.get(session.id)
            if commit is not None and (commit.started or joined):
                self._plan_commit(step, session)  # half a commit is no state to answer on
                planned = step.planned.get(session.id)
                if planned is None and commit.started:
                    return
            if planned is None:
                base = self._residence(step, session, wanted=True)
                if base is None:
                    return
                append = tuple(session.tokens[session.resident : session.resident + step.room])
                if append:
                    session.scratch_end = session.resident + len(append)
                planned = step.add(PlannedSession(session, base, append))
        if planned.base is None or not planned.reaches_end:
            return
        first = len(step.planned) == 1 and not planned.branches
        if len(work.entry) > step.room and not first and not work.generated:
            return
        self._budget.touch(session.id)
        if len(work.entry) > self._longest_entry(planned):
            planned.refused.append(work)
            return
        branch = self._query_branch(planned, planned.base, work)
        if branch is not None:
            planned.queries.append(work)
            planned.branches.append(branch)
            step.room -= len(branch.tokens)

    def _longest_entry(self, planned: PlannedSession) -> int:
        """Tokens that an entry may have: all of the session's share behind the live end."""
        session = planned.session
        live_end = session.resident + len(planned.append)
        return self._budget.shape.share - live_end - session.builder.profile.max_answer_tokens + 1

    def _query_branch(self, planned: PlannedSession, base: int, work: QueryWork) -> Branch | None:
        """Resume at the longest common prefix of the realised entry and any resident branch (Eq. 5), or run
        the whole entry (Eq. 2). None when other branches of this step hold the cells it needs."""
        session = planned.session
        if work.generated:
            assert work.cell is not None
            return Branch((work.generated[-1],), work.cell + work.computed, work.computed, work.cell)
        reused, source = 0, 0
        if not planned.append:
            for resident in session.branches:
                # The last token always runs: its logits are the answer.
                common = min(common_prefix(resident.tokens, work.entry), len(work.entry) - 1)
                if common > reused:
                    reused, source = common, resident.cell
        live_end = session.resident + len(planned.append)
        length = len(work.entry) + session.builder.profile.max_answer_tokens - 1
        shape = self._budget.shape
        if session.scratch_end + length > shape.share - shape.reserve:
            if planned.branches or self._scheduler.generating(session.id):
                return None
            session.branches.clear()
            session.scratch_end, reused = live_end, 0
            if live_end + length > shape.share - shape.reserve:
                session.second = None  # the reserve serves a query before it serves the next swap
        work.cell, work.reused = session.scratch_end, reused
        session.scratch_end += length
        if reused:
            self._cells.copy(base + source, base + work.cell, reused)
        return Branch(work.entry[reused:], work.cell + reused, reused, work.cell if reused else 0)

    def _count_skips(self, skipped: tuple[Entry, ...]) -> None:
        self._counters.prepositions_skipped_total += len(skipped)
