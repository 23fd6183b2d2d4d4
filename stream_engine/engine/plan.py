"""What one step will do, as the planner says it: tokens to append, branches, cells to copy. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_engine.decision.entry import Entry
from stream_engine.model.forward.step import Borrowed, Branch, Segment, cell_runs
from stream_engine.session.cell_budget import Use, Workbench
from stream_engine.session.session import ResidentBranch, SecondSlab, Session
from stream_engine.state.scheduler import CheckWork, CommitWork, Lane, QueryWork


@dataclass(frozen=True, slots=True)
class CellCopy:
    """Cells that are copied before the step runs; positions in the whole store."""

    source: int
    target: int
    count: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The slab at ``base`` goes to a session, ``evicted`` loses it (None: it was free)."""

    base: int
    evicted: str | None


@dataclass(frozen=True, slots=True)
class Loan:
    """The extent at ``base`` of the pool is lent to a session."""

    session: str
    use: Use
    base: int


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A question in the step. Its branch's cells begin at ``cell``, relative to the slab's base; the first
    ``reused`` of them are computed already (Eq. 5)."""

    work: QueryWork
    cell: int
    reused: int


@dataclass(slots=True)
class PlannedSession:
    """One session's part of a step. Nothing of it has happened yet.

    ``base`` is None for a commit that runs no tokens (tokens-only session). ``resident`` counts the tokens
    that are in the cells from ``base`` on when the step's copies are done, ``scratch_end`` is where the
    scratch cells behind the live end will end, ``borrowed`` where those behind the slab's end lie. ``resumable``
    are the branches there that a query may resume from; with ``forgets`` those that the session has now are gone.
    ``commit`` is set when this step begins or continues one; ``slab`` when the segment fills the second slab
    instead of the live one. ``swapped`` says that the second slab has become the live one, ``drops_second`` that
    it is given up or used up. ``gave_way`` says whether riders of a commit wait for something else. ``deferred``
    entries run alone later, ``skipped`` ones not at all at this version. ``refused`` are queries
    whose entry is too long for the session's share. With a ``check`` the one branch is that of an earlier
    boundary, and nothing of the session changes. On the ``bench`` lies a session without cells: only what becomes
    ready is its own."""

    session: Session
    base: int | None
    resident: int = 0
    scratch_end: int = 0
    borrowed: Borrowed | None = None
    resumable: tuple[ResidentBranch, ...] = ()
    append: tuple[int, ...] = ()
    commit: CommitWork | None = None
    slab: SecondSlab | None = None
    bench: Workbench | None = None
    check: CheckWork | None = None
    swapped: bool = False
    drops_second: bool = False
    forgets: bool = False
    gave_way: bool | None = None
    riders: list[Entry] = field(default_factory=list)
    deferred: tuple[Entry, ...] = ()
    skipped: tuple[Entry, ...] = ()
    queries: list[PlannedQuery] = field(default_factory=list)
    refused: list[QueryWork] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)

    @property
    def live_end(self) -> int:
        """Tokens in the cells after the step."""
        return self.resident + len(self.append)

    @property
    def reaches_end(self) -> bool:
        """After this step every token of the log is resident."""
        return self.live_end == len(self.session.tokens)

    def extend(self, room: int) -> None:
        """Append what is due of the log, as far as the step has room; scratch cells begin behind it."""
        self.append = tuple(self.session.tokens[self.resident : self.resident + room])
        if self.append:
            self.scratch_end = self.live_end

    def forget_branches(self) -> None:
        """The scratch cells are used anew from the live end on."""
        self.forgets, self.resumable, self.scratch_end = True, (), self.live_end

    def ride(self, entry: Entry) -> None:
        """Evaluate ``entry`` on top of the session, in the scratch cells."""
        self.riders.append(entry)
        self.branches.append(Branch(entry.tokens, self.scratch_end))
        self.scratch_end += len(entry.tokens)

    def segment(self) -> Segment | None:
        if self.base is None or not (self.append or self.branches):
            return None
        return Segment(self.base, self.resident, self.append, tuple(self.branches), borrowed=self.borrowed)

    def copies(self, source: int, target: int, count: int) -> list[CellCopy]:
        """``count`` cells of the session's, from one offset to another."""
        assert self.base is not None
        found: list[CellCopy] = []
        while count:
            (first, end), *_ = cell_runs(self.base, self.borrowed, source, count)
            (place, last), *_ = cell_runs(self.base, self.borrowed, target, count)
            run = min(end - first, last - place)
            found.append(CellCopy(first, place, run))
            source, target, count = source + run, target + run, count - run
        return found


@dataclass(slots=True)
class Plan:
    """A step of at most ``room`` tokens more. ``uses`` are, in order, the sessions that get cells by a claim,
    or whose cells are asked for (no claim); ``evicted`` those that lose theirs, ``loans`` what the pool lends.
    ``finished`` is background work that is over (this step's included), ``refills`` are sessions to be computed
    on the workbench later; ``skipped`` counts decision points that have no room, ``unprepared`` second slabs that
    have none."""

    room: int
    sessions: dict[str, PlannedSession] = field(default_factory=dict)
    copies: list[CellCopy] = field(default_factory=list)
    uses: list[tuple[str, Claim | None]] = field(default_factory=list)
    evicted: set[str] = field(default_factory=set)
    loans: list[Loan] = field(default_factory=list)
    finished: list[tuple[Lane, str]] = field(default_factory=list)
    refills: list[str] = field(default_factory=list)
    skipped: int = 0
    unprepared: int = 0

    def add(self, planned: PlannedSession) -> PlannedSession:
        self.sessions[planned.session.id] = planned
        self.room -= len(planned.append)
        return planned
