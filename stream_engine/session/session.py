"""A resident session: token log, live end, boundaries and what is known at its decision points. Ids only.

The token log is the truth; KV cells are derived from it and can always be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from stream_engine.decision.freshness import NO_STAMP
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.messages import Record, Window, WindowBar
from stream_engine.model.render.rendering import Builder
from stream_engine.session.region import Region, RegionChange, StoredBar


class SessionState(Enum):
    EMPTY = "EMPTY"
    WARMING_UP = "WARMING_UP"
    """Fewer bars than the model was made for: answers say so, and none takes the fast path."""
    LIVE = "LIVE"
    FULL = "FULL"
    """The region is at its capacity: the next commit swaps the window."""
    REBUILDING = "REBUILDING"
    """Windows are refilled from the log after a restart; nothing is answered yet."""
    EVICTED = "EVICTED"
    """Tokens only: the cells went to another session, and come back on demand. What is ready stays so."""
    DORMANT = "DORMANT"
    """No object stays, one row: the window lies in its topic, and comes back with a record or a question."""


_SERVING = {SessionState.WARMING_UP, SessionState.LIVE, SessionState.FULL}
_TRANSITIONS: dict[SessionState, set[SessionState]] = {
    SessionState.EMPTY: {*_SERVING, SessionState.REBUILDING, SessionState.EVICTED},
    SessionState.REBUILDING: {*_SERVING, SessionState.EVICTED},
    # An out-of-range bar starts a shorter region, so a serving session may go back to an earlier state.
    SessionState.WARMING_UP: {*_SERVING, SessionState.EVICTED, SessionState.DORMANT},
    SessionState.LIVE: {*_SERVING, SessionState.EVICTED, SessionState.DORMANT},
    SessionState.FULL: {*_SERVING, SessionState.EVICTED, SessionState.DORMANT},
    SessionState.EVICTED: {*_SERVING, SessionState.EVICTED, SessionState.DORMANT},
    # It wakes without cells; while its partition is replayed, to be refilled further.
    SessionState.DORMANT: {SessionState.EVICTED, SessionState.REBUILDING},
}


class IllegalTransition(RuntimeError):
    """A session was moved to a state that does not follow from its present one."""


@dataclass(frozen=True, slots=True)
class Source:
    """The one partition that feeds a session (one source a session)."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ResidentBranch:
    """An entry whose cells still lie behind the live end: ``cell`` is relative to the slab's base."""

    tokens: tuple[int, ...]
    cell: int


@dataclass(slots=True)
class SecondSlab:
    """The next region, prefilled ahead of the swap: its token log and how much of it is resident."""

    tokens: list[int]
    resident: int

    @property
    def complete(self) -> bool:
        return self.resident == len(self.tokens)


@dataclass(slots=True)
class Session:
    """State of one stream key. Only the engine thread touches it.

    ``resident`` counts the leading tokens of ``tokens`` whose KV is in cells; the rest is due.
    ``version`` is the last applied offset + 1 for a Kafka-fed session, the number of settles otherwise.
    ``timestamp_ms`` is the newest applied record's own stamp, not the largest seen: a later honest one counts.
    ``floor`` is the offset of the first record that the window last handed out for the compacted topic does
    not hold: where a rebuild has to start reading for this session; None where it needs no record.
    ``owed`` are keys of standing queries that asked for every commit and were not evaluated at the present version
    yet.
    ``window_due`` asks for a new window. ``gap_end`` is where the log began when records before it had aged
    out.
    """

    id: str
    builder: Builder
    source: Source | None = None
    state: SessionState = SessionState.EMPTY
    region: Region = field(init=False)
    tokens: list[int] = field(init=False)
    turns: list[int] = field(default_factory=list)
    resident: int = 0
    version: int = 0
    offset: int = -1
    timestamp_ms: int = NO_STAMP
    branches: list[ResidentBranch] = field(default_factory=list)
    scratch_end: int = 0
    ready: dict[str, ReadyDistribution] = field(default_factory=dict)
    deferrals: int = 0
    owed: set[str] = field(default_factory=set)
    swaps: int = 0
    second: SecondSlab | None = None
    awaiting_tool: bool = False
    gap_end: int | None = None
    floor: int | None = None
    has_window: bool = False
    window_due: bool = False

    def __post_init__(self) -> None:
        self.region = Region(self.id, self.builder)
        self.tokens = list(self.builder.prefix)

    def move_to(self, state: SessionState) -> None:
        if state is not self.state and state not in _TRANSITIONS[self.state]:
            raise IllegalTransition(f"session {self.id!r}: {self.state.value} -> {state.value}")
        self.state = state

    @property
    def serving(self) -> bool:
        """With cells or without."""
        return self.state in _SERVING or self.state is SessionState.EVICTED

    @property
    def answer_state(self) -> SessionState:
        """What an answer says of its session: whether that has cells is nothing to the one who asks."""
        return self.settled_state() if self.state is SessionState.EVICTED else self.state

    @property
    def current(self) -> bool:
        """Every token of the log is resident."""
        return self.resident == len(self.tokens)

    @property
    def incomplete(self) -> bool:
        """The bars that a question is about may have a hole: not all are from behind the log's gap."""
        if self.gap_end is None:
            return False
        return (
            not self.window
            or self.region.bars[-self.window].offset < self.gap_end
            or (self.window < self.builder.profile.window_bars)
        )

    @property
    def window(self) -> int:
        """Bars that a question is about."""
        return min(len(self.region), self.builder.profile.window_bars)

    @property
    def event_time_us(self) -> int | None:
        return self.region.bars[-1].bar.time_us if len(self.region) else None

    def settled_state(self) -> SessionState:
        """The serving state that the region's fill calls for."""
        if self.turns and not len(self.region):
            return SessionState.LIVE
        if len(self.region) < self.builder.profile.window_bars:
            return SessionState.WARMING_UP
        return SessionState.FULL if self.region.full else SessionState.LIVE

    def apply(self, record: Record) -> RegionChange:
        """Advance the token log by one record. Returns what changed; a record whose bars are all late changes
        nothing."""
        had_window = len(self.region) >= self.builder.profile.window_bars
        bars = (StoredBar(bar, record.offset, record.timestamp_ms) for bar in record.bars)
        change = self.region.extend(bars, record.still_open)
        if change.late and len(change.late) == len(record.bars):
            return change
        self._rewrite_region(change.kept_tokens, record.offset + 1)
        self.offset = record.offset
        self.timestamp_ms = record.timestamp_ms
        if self.floor is None:
            self.floor = record.offset
        # The first window claims the key for its source: only what has one comes back in a replay.
        self.window_due |= not self.has_window or (change.rebuilt and had_window)
        self.swaps += change.rebuilt and had_window
        return change

    def window_message(self) -> Window:
        """The region for the compacted topic; from now on a rebuild starts behind it."""
        self.floor, self.has_window, self.window_due = None, True, False
        return self.stored_window()

    @property
    def may_sleep(self) -> bool:
        """Its window brings all of it back: it is fed by a partition, nothing of it is owed, open or missing, and
        it holds no turns."""
        return (
            self.source is not None
            and self.serving
            and bool(len(self.region))
            and not (self.turns or self.owed or self.awaiting_tool or self.incomplete)
            and not self.region.still_open
        )

    def stored_window(self, asleep: bool = False) -> Window:
        """The region as a restart needs it."""
        stored, units, still_open = self.region.stored()
        bars = tuple(
            WindowBar(stored_bar.bar, stored_bar.offset, stored_bar.timestamp_ms) for stored_bar in stored
        )
        return Window(
            session=self.id,
            offset=self.offset,
            timestamp_ms=self.timestamp_ms,
            swaps=self.swaps,
            units=units,
            bars=bars,
            still_open=still_open,
            asleep=asleep,
        )

    def restore(self, window: Window) -> None:
        """Become the session that handed out ``window``."""
        assert window.bars, "a deletion restores nothing"
        bars = (
            StoredBar(window_bar.bar, window_bar.offset, window_bar.timestamp_ms) for window_bar in window.bars
        )
        self.region.restore(bars, window.units, window.still_open)
        self._rewrite_region(0, window.offset + 1)
        self.offset = window.offset
        self.timestamp_ms, self.swaps = window.timestamp_ms, window.swaps
        self.has_window = True
        if self.gap_end is not None:
            # What aged out had versions too, and none goes back: the session stands at the end of the gap.
            self.offset = max(self.offset, self.gap_end - 1)
            self.version = self.offset + 1

    def ask_window(self) -> None:
        """Whether the windows handed out were written is not known: the partition's new owner gets them again."""
        self.window_due |= self.has_window

    def await_tool(self) -> None:
        """A tool call was emitted: the envelope of its result is a decision point."""
        self.awaiting_tool = True

    def tool_answered(self) -> None:
        self.awaiting_tool = False

    def append_turn(self, tokens: tuple[int, ...], computed: int = 0) -> None:
        """Extend an agentic session's turns: durable tokens that are not bars. The first ``computed`` of them have
        their cells at the live end already."""
        self.turns.extend(tokens)
        self._rewrite(len(self.tokens), tokens, self.version + 1)
        self.resident += computed
        self.forget_branches()

    def _rewrite_region(self, kept: int, version: int) -> None:
        """The region has changed behind its first ``kept`` tokens."""
        tail = (*self.region.tokens()[kept:], *self.turns)
        self._rewrite(len(self.builder.prefix) + kept, tail, version)

    def _rewrite(self, kept: int, tail: Iterable[int], version: int) -> None:
        """The one place where the token log changes: behind its first ``kept`` tokens it goes on with ``tail``.

        No ready distribution and no branch survives that (section 3.6), and cells are cut to what still holds
        (O(1): the length is set, no cell is touched)."""
        self.tokens[kept:] = tail
        self.version = version
        self.resident = min(self.resident, kept)
        self.invalidate()

    def decoded(self, key: str, ready: ReadyDistribution) -> None:
        """A decision point of the present log has been computed."""
        self.ready[key] = ready
        self.owed.discard(key)

    def forget(self, key: str) -> None:
        """Nobody asks for that decision point any more."""
        self.ready.pop(key, None)

    def corrected(self, before: int) -> None:
        """Records were applied while ``before`` tokens were resident. Where they have changed the region inside,
        the second slab holds an old bar."""
        if len(self.builder.prefix) < self.resident < before:
            self.second = None

    def owe(self, keys: Iterable[str]) -> None:
        """Standing queries that are not evaluated at the present version yet, as they have asked to be."""
        self.owed = set(keys)

    def put_off(self, again: bool) -> None:
        """Whether riders of this commit have given way."""
        self.deferrals = self.deferrals + 1 if again else 0

    def occupy(self, resident: int) -> None:
        """The first ``resident`` tokens are in the session's cells, and nothing else is."""
        self.resident = resident
        self.forget_branches()

    def advance(self, count: int) -> None:
        """``count`` tokens more of the log are resident."""
        self.resident += count

    def reserve(self, scratch_end: int) -> None:
        """Cells behind the live end are in use up to there."""
        self.scratch_end = scratch_end

    def keep_branch(self, branch: ResidentBranch) -> None:
        """An entry's cells may be resumed from, until the live end moves."""
        self.branches.append(branch)

    def fill_second(self, slab: SecondSlab, count: int) -> None:
        """``count`` tokens more of the next region are resident."""
        self.second = slab
        slab.resident += count

    def drop_second(self) -> None:
        """Its cells are needed, or have become the live ones."""
        self.second = None

    def forget_branches(self) -> None:
        """The live end moves or the cells behind it are reused: nothing there may be resumed from."""
        self.branches.clear()
        self.scratch_end = self.resident

    def fold(self, end: int) -> None:
        """The cells behind offset ``end`` are given back, and with them the branches that reach there."""
        self.branches[:] = [kept for kept in self.branches if kept.cell + len(kept.tokens) <= end]
        self.scratch_end = min(self.scratch_end, end)

    def lose_cells(self) -> None:
        """They go to another session. What was computed from them is still of the present log."""
        self.resident, self.second = 0, None
        self.forget_branches()

    def invalidate(self) -> None:
        """Nothing that was computed from the present log may be used any more."""
        self.ready.clear()
        self.owed.clear()
        self.forget_branches()

    def check_integrity(self) -> None:
        """Cells = tokens = boundary. Raises AssertionError with what differs."""
        expected = [*self.builder.prefix, *self.region.tokens(), *self.turns]
        assert self.tokens == expected, f"session {self.id!r}: token log differs from its region"
        assert 0 <= self.resident <= len(self.tokens), f"session {self.id!r}: more cells than tokens"
        times = [stored.bar.time_us for stored in self.region.bars]
        assert times == sorted(set(times)), f"session {self.id!r}: bars are out of order"
        if self.resident:
            assert self.resident <= self.scratch_end, f"session {self.id!r}: scratch cells inside the live ones"
        for branch in self.branches:
            inside = self.resident <= branch.cell and branch.cell + len(branch.tokens) <= self.scratch_end
            assert inside, f"session {self.id!r}: a branch lies outside its scratch cells"
