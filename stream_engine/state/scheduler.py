"""Work items and their priorities: what goes into the next step. Ids only, no tensors.

    query > commit > standing query > shadow verification > lone pre-position > second slab > refill

A waiting commit joins every k-th query step, so that neither starves. What finds no room in a step keeps
its place in its queue.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from stream_engine.decision.entry import Entry
from stream_engine.messages import Answer, Check, ErrorReply, Query, Record
from stream_engine.model.forward.distribution import Distribution
from stream_engine.state.partitions import OpenBatch

QueryReply = Callable[[Answer | ErrorReply], None]


@dataclass(slots=True)
class QueryWork:
    """A question that takes the full path. ``entry`` is its whole realised entry; ``generated`` what has been
    decoded so far; ``cell`` where the branch's cells begin, relative to the slab's base, once it has some. From
    ``expires`` on (of the monotonic clock) nobody waits for the answer."""

    query: Query
    reply: QueryReply
    since: float
    entry: tuple[int, ...]
    class_name: str | None
    expires: float = math.inf
    generated: list[int] = field(default_factory=list)
    cell: int | None = None
    computed: int = 0
    reused: int = 0
    first: Distribution | None = None


@dataclass(slots=True)
class CommitWork:
    """Records of one session that wait for a step; together they become one commit.

    ``taken`` are those of the commit in progress (one whose tokens need several steps): they are in the
    token log already, and ``started`` is set; ``late_only`` where all of them were late, so that nothing
    changed. Later ``records`` wait for the next commit. A record comes
    with the batch that waits for it; pushed data and a go-live after a replay have neither.
    """

    session: str
    since: float
    records: list[tuple[Record, OpenBatch]] = field(default_factory=list)
    taken: list[tuple[Record, OpenBatch]] = field(default_factory=list)
    started: bool = False
    late_only: bool = False


@dataclass(frozen=True, slots=True)
class CheckWork:
    """A fast answer to compare with the full path: ``entry`` on the first ``boundary`` tokens of the session, and
    what it has ``generated`` so far."""

    check: Check
    boundary: int
    entry: tuple[int, ...]
    generated: tuple[int, ...] = ()


class Lane(Enum):
    """Background lanes, by falling priority: work that runs only when no query and no commit waits."""

    STANDING = "standing"
    LONE = "lone"
    SECOND_SLAB = "second_slab"
    REFILL = "refill"
    """A session without cells, whose decision points are computed on the workbench."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Candidates for one step, in order of priority; ``lane`` says what ``sessions`` are due for. A ``check`` has
    the step to itself, so that a query that comes meanwhile waits for as little as can be."""

    queries: tuple[QueryWork, ...] = ()
    commits: tuple[str, ...] = ()
    lane: Lane | None = None
    sessions: tuple[str, ...] = ()
    check: CheckWork | None = None


class Scheduler:
    """Queues of the engine thread."""

    def __init__(self, commit_every: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._commit_every = commit_every
        self._clock = clock
        self._query_steps = 0
        self.queries: deque[QueryWork] = deque()
        self.commits: OrderedDict[str, CommitWork] = OrderedDict()
        self.lanes: dict[Lane, OrderedDict[str, float]] = {lane: OrderedDict() for lane in Lane}
        self.checks: deque[CheckWork] = deque()

    def add_query(self, work: QueryWork) -> None:
        self.queries.append(work)

    def add_commit(self, session: str) -> CommitWork:
        """The session's waiting commit, queued now where there was none."""
        work = self.commits.get(session)
        if work is None:
            work = self.commits[session] = CommitWork(session, self._clock())
        return work

    def commit_done(self, work: CommitWork) -> None:
        """A commit is complete; records that came meanwhile queue as a new one."""
        del self.commits[work.session]
        if work.records:
            self.commits[work.session] = CommitWork(work.session, self._clock(), work.records)

    def add(self, lane: Lane, session: str) -> None:
        self.lanes[lane].setdefault(session, self._clock())

    def drop_session(self, session: str) -> CommitWork | None:
        """Forget all background work and commits of a session; returns the commit that waited."""
        for lane in self.lanes.values():
            lane.pop(session, None)
        return self.commits.pop(session, None)

    def select(self) -> Selection | None:
        """Candidates for the next step, None when there is no work. Nothing is taken off a queue here."""
        if self.queries:
            self._query_steps += 1
            joined = self.commits and self._query_steps % self._commit_every == 0
            return Selection(tuple(self.queries), tuple(self.commits) if joined else ())
        self._query_steps = 0
        if self.commits:
            return Selection(commits=tuple(self.commits))
        for lane, due in self.lanes.items():
            if lane is Lane.LONE and self.checks:
                return Selection(check=self.checks[0])
            if due:
                return Selection(lane=lane, sessions=tuple(due))
        return None

    @property
    def busy(self) -> bool:
        return bool(self.queries or self.commits or self.checks or any(self.lanes.values()))

    def oldest_s(self) -> float:
        """Age in seconds of the oldest query or commit that waits; 0 when none does. Background lanes may
        wait for long while there is other work, and that is no sign of trouble."""
        since = [work.since for work in self.queries]
        since += [work.since for work in self.commits.values()]
        return self._clock() - min(since) if since else 0.0


@dataclass(frozen=True, slots=True)
class Riders:
    """Which entries ride along with a commit. ``deferred`` run alone later; ``skipped`` have no room (the
    headroom check of Alg. 1) and are not run for this version. ``gave_way`` where a deferred one waits for a
    query, for more data or for a step with room: one that only has no room beside the others never rides."""

    riding: tuple[Entry, ...]
    deferred: tuple[Entry, ...]
    skipped: tuple[Entry, ...]
    gave_way: bool


def choose_riders(
    entries: Sequence[Entry],
    *,
    headroom: int,
    step_room: int,
    query_waits: bool,
    more_queued: bool,
    deferrals: int,
    max_deferrals: int,
) -> Riders:
    """Riders of one commit (pre-positioning is best-effort and of the lowest priority).

    ``headroom`` is ``B`` of Alg. 1 in cells, ``step_room`` the tokens the step still has. Riders wait while a
    query waits, more data for the session is queued or the step is full, but for at most ``max_deferrals``
    commits in a row, and never a standing query that asked for every commit: those may make the step longer by
    one session's entries.
    """
    busy = query_waits or more_queued
    patient = deferrals < max_deferrals
    riding: list[Entry] = []
    deferred: list[Entry] = []
    skipped: list[Entry] = []
    gave_way = False
    for entry in sorted(entries, key=lambda entry: not entry.every_commit):
        length = len(entry.tokens)
        if length > headroom:
            skipped.append(entry)
        elif patient and not entry.every_commit and (busy or length > step_room):
            deferred.append(entry)
            gave_way = True
        elif sum(len(other.tokens) for other in riding) + length > headroom:
            deferred.append(entry)  # it fits, but not beside the others: alone, it reuses their cells
        else:
            riding.append(entry)
            step_room -= length
    return Riders(tuple(riding), tuple(deferred), tuple(skipped), gave_way)
