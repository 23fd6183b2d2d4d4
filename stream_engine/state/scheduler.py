"""Work items and their priorities: what goes into the next step. Ids only, no tensors.

    query > commit > standing query > shadow verification > lone pre-position > second slab > refill

A waiting commit joins every k-th query step, so that neither starves. What finds no room in a step keeps
its place in its queue.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from stream_engine.messages import Answer, Check, ErrorReply, Query, Record
from stream_engine.model.forward.distribution import Distribution
from stream_engine.state.partitions import OpenBatch

CANDIDATES = 128
"""Sessions that one step chooses among, besides those whose commit is in progress. Not all of them run tokens, so
the step's room does not bound them; what waits behind them has its turn in a later step."""

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
    routed_by: str = "none"
    expires: float = math.inf
    generated: list[int] = field(default_factory=list)
    cell: int | None = None
    computed: int = 0
    reused: int = 0
    first: Distribution | None = None

    def place(self, cell: int, reused: int) -> None:
        """Where its branch begins, and how much of it is computed already."""
        self.cell, self.reused = cell, reused

    def restart(self) -> None:
        """The session's log has changed under the answer: it begins anew, on the new one."""
        self.generated.clear()
        self.cell, self.first = None, None
        self.computed = self.reused = 0


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

    def begin(self) -> list[tuple[Record, OpenBatch]]:
        """Its records go into the token log now; later ones are of the next commit."""
        self.taken, self.records, self.started = self.records, [], True
        return self.taken

    def settle(self) -> None:
        """The records taken are applied."""
        for _, batch in self.taken:
            batch.unsettled -= 1
            batch.applied += 1
        self.taken = []

    def give_up(self) -> None:
        """With its session: the batches wait for none of its records any more."""
        self.taken += self.records
        self.settle()


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
    """Queues of the engine thread. They change by the verbs here; what others see of them is read-only."""

    def __init__(self, commit_every: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._commit_every = commit_every
        self._clock = clock
        self._query_steps = 0
        self._queries: deque[QueryWork] = deque()
        self._commits: OrderedDict[str, CommitWork] = OrderedDict()
        self._begun: dict[str, None] = {}
        self._hastened: dict[str, None] = {}
        self._lanes: dict[Lane, OrderedDict[str, float]] = {lane: OrderedDict() for lane in Lane}
        self._checks: deque[CheckWork] = deque()
        self.commits: Mapping[str, CommitWork] = MappingProxyType(self._commits)
        """Commits by session, longest waiting first."""

    # --- queries -------------------------------------------------------------------------------------

    @property
    def queries(self) -> tuple[QueryWork, ...]:
        """Queries in hand, longest waiting first."""
        return tuple(self._queries)

    @property
    def query_count(self) -> int:
        return len(self._queries)

    def add_query(self, work: QueryWork) -> None:
        self._queries.append(work)

    def query_done(self, work: QueryWork) -> None:
        """It has its reply."""
        self._queries.remove(work)

    def take_expired(self, now: float) -> list[QueryWork]:
        """Queries for which nobody waits any more at ``now`` (of the monotonic clock); they are off the queue."""
        expired = [work for work in self._queries if now >= work.expires]
        for work in expired:
            self._queries.remove(work)
        return expired

    def queries_of(self, session: str) -> list[QueryWork]:
        return [work for work in self._queries if work.query.session == session]

    def generating(self, session: str) -> bool:
        """Whether an answer of several tokens is being decoded on the session's present version."""
        return any(work.generated and work.query.session == session for work in self._queries)

    # --- commits -------------------------------------------------------------------------------------

    def add_commit(self, session: str) -> CommitWork:
        """The session's waiting commit, queued now where there was none."""
        work = self._commits.get(session)
        if work is None:
            work = self._commits[session] = CommitWork(session, self._clock())
        return work

    def commit_begun(self, work: CommitWork) -> None:
        """It holds cells until it is complete: every step thinks of it."""
        self._begun[work.session] = None
        self._hastened.pop(work.session, None)

    def at_work(self) -> set[str]:
        """Sessions of which a commit is in progress, or an answer: they need their cells."""
        return self._begun.keys() | {work.query.session for work in self._queries if work.generated}

    def hasten(self, session: str) -> None:
        """Somebody asks: its commit is the next one that is begun."""
        if session in self._commits and session not in self._begun:
            self._hastened[session] = None

    def next_commits(self) -> tuple[str, ...]:
        """Sessions whose commit may be of the next step: those in progress, then those that were asked for, then
        those that wait the longest."""
        known = len(self._begun) + len(self._hastened)
        behind = itertools.islice(self._commits, CANDIDATES + known)
        waiting = (name for name in behind if name not in self._begun and name not in self._hastened)
        return (*self._begun, *itertools.islice(itertools.chain(self._hastened, waiting), CANDIDATES))

    def commit_done(self, work: CommitWork) -> None:
        """A commit is complete; records that came meanwhile queue as a new one."""
        self._take_off(work.session)
        if work.records:
            self._commits[work.session] = CommitWork(work.session, self._clock(), work.records)

    def _take_off(self, session: str) -> CommitWork | None:
        self._begun.pop(session, None)
        self._hastened.pop(session, None)
        return self._commits.pop(session, None)

    def recall(self, session: str, *, keep: bool) -> None:
        """The session's records that wait unapplied are no longer to be; a commit that has not begun goes with
        them, unless there is another reason to ``keep`` it."""
        work = self._commits.get(session)
        if work is not None:
            work.records.clear()
            if not (work.started or keep):
                self._take_off(session)

    # --- background ----------------------------------------------------------------------------------

    def add(self, lane: Lane, session: str) -> None:
        self._lanes[lane].setdefault(session, self._clock())

    def lane_done(self, lane: Lane, session: str) -> None:
        """Nothing of that lane is left to do for the session."""
        self._lanes[lane].pop(session, None)

    def waiting(self, lane: Lane) -> int:
        """Sessions that are due in a lane."""
        return len(self._lanes[lane])

    @property
    def checks(self) -> tuple[CheckWork, ...]:
        """Checks in hand, the next one first."""
        return tuple(self._checks)

    @property
    def check_count(self) -> int:
        return len(self._checks)

    @property
    def next_check(self) -> CheckWork | None:
        return self._checks[0] if self._checks else None

    def add_check(self, work: CheckWork) -> None:
        self._checks.append(work)

    def continue_check(self, work: CheckWork, token: int) -> None:
        """The answer that is compared goes on: the check is the next one again."""
        self._checks.remove(work)
        self._checks.appendleft(replace(work, generated=(*work.generated, token)))

    def check_done(self, work: CheckWork) -> None:
        self._checks.remove(work)

    # --- all of it -----------------------------------------------------------------------------------

    def drop_session(self, session: str) -> CommitWork | None:
        """Forget all background work and commits of a session; returns the commit that waited."""
        for lane in self._lanes.values():
            lane.pop(session, None)
        return self._take_off(session)

    def select(self) -> Selection | None:
        """Candidates for the next step, None when there is no work. Nothing is taken off a queue here."""
        if self._queries:
            self._query_steps += 1
            joined = self._commits and self._query_steps % self._commit_every == 0
            return Selection(tuple(self._queries), self.next_commits() if joined else ())
        self._query_steps = 0
        if self._commits:
            return Selection(commits=self.next_commits())
        for lane, due in self._lanes.items():
            if lane is Lane.LONE and self._checks:
                return Selection(check=self._checks[0])
            if due:
                return Selection(lane=lane, sessions=tuple(itertools.islice(due, CANDIDATES)))
        return None

    @property
    def in_background(self) -> bool:
        """Neither a query nor a commit waits."""
        return not (self._queries or self._commits)

    @property
    def busy(self) -> bool:
        return not self.in_background or bool(self._checks or any(self._lanes.values()))

    def oldest_s(self) -> float:
        """Age in seconds of the oldest query or commit that waits; 0 when none does. Background lanes may
        wait for long while there is other work, and that is no sign of trouble."""
        since = [work.since for work in self._queries]
        since += [work.since for work in itertools.islice(self._commits.values(), 1)]  # they wait in their order
        return self._clock() - min(since) if since else 0.0
