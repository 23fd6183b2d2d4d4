"""The data region: which bars are resident, in which units, as which tokens. Ids only, no tensors.

A region holds from one to two windows of bars. What happens to it depends on the bars alone, never on how
they were grouped into commits or on when the engine was idle, so a replay reproduces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from stream_engine.messages import Bar, WindowUnits
from stream_engine.model.frame import BarArrays, RegionFrame
from stream_engine.model.render.rendering import Builder

JUMP_SHARE = 0.35
JUMP_UNITS = 8.0
"""A close this far from the one before it, as a share of that one's size and in units, is a split or a crash."""

GAP_STEPS = 1.5
"""More than so many bar lengths from one bar to the next are a gap."""


@dataclass(frozen=True, slots=True)
class StoredBar:
    """A committed bar and the Kafka record that brought it (``offset`` -1 for pushed data)."""

    bar: Bar
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RegionChange:
    """What ``extend`` did. ``kept_tokens`` leading region tokens are as before (0 after a rebuild);
    ``rebuilt`` says that the region has a new frame (a swap); ``late`` are bars older than the region; ``gaps``
    how many of the appended bars did not follow the one before at once."""

    kept_tokens: int
    rebuilt: bool
    late: tuple[StoredBar, ...]
    gaps: int = 0


@dataclass(frozen=True, slots=True)
class _Closed:
    """A region as it was before its newest bar, which is still open."""

    bars: list[StoredBar]
    frame: RegionFrame | None
    frame_bars: int


class Region:
    """Bars of one session, oldest first, with unique ascending times. The newest one may be open: what it did to
    the region is undone when it changes, so that no price that was seen only meanwhile leaves a trace."""

    def __init__(self, symbol: str, builder: Builder) -> None:
        self._symbol = symbol
        self._builder = builder
        self._window = builder.profile.window_bars
        self._capacity = builder.profile.region_bars
        self.bars: list[StoredBar] = []
        self.frame: RegionFrame | None = None
        self._frame_bars = 0
        self._closed: _Closed | None = None
        self._anchor: tuple[int, ...] = ()
        self._rows: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self.bars)

    @property
    def full(self) -> bool:
        """The next bar makes a swap."""
        return len(self.bars) >= self._capacity

    @property
    def still_open(self) -> bool:
        """The newest bar may come again with other values."""
        return self._closed is not None

    def tokens(self) -> list[int]:
        """Anchor and bars, in order."""
        flat = list(self._anchor)
        for row in self._rows:
            flat.extend(row)
        return flat

    def boundary(self, bars: int) -> int:
        """Region tokens up to and including the first ``bars`` bars."""
        return len(self._anchor) + sum(map(len, self._rows[:bars]))

    def extend(self, bars: Iterable[StoredBar], still_open: bool = False) -> RegionChange:
        """Add bars: newer ones append; an equal time replaces; one inside the region rolls back to its place
        and the later bars are appended again; older ones are ``late`` and left out. ``still_open``: the newest
        one may come again with other values."""
        late: list[StoredBar] = []
        shown, frame = list(self.bars), self.frame
        first_changed = len(self.bars)
        rebuilt, gaps, undone = False, 0, False
        for stored in bars:
            if self.bars and stored.bar.time_us < self.bars[0].bar.time_us:
                late.append(stored)
                continue
            gaps += self._follows_a_gap(stored)
            undone |= self._undo(stored)
            if still_open and (not self.bars or stored.bar.time_us > self.bars[-1].bar.time_us):
                self._closed = _Closed(list(self.bars), self.frame, self._frame_bars)
            index = self._place(stored)
            first_changed = min(first_changed, index)
            rebuilt |= self._reframe(stored, index)
        if undone:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(shown, self.bars, strict=False)))
            rebuilt, first_changed = self.frame != frame or not same, same
        if rebuilt:
            assert self.frame is not None
            self._anchor = self._builder.anchor(self.frame)
            self._rows = self._render(self.frame, self.bars)
            return RegionChange(0, True, tuple(late), gaps)
        kept = self.boundary(first_changed)
        if first_changed < len(self.bars):
            assert self.frame is not None
            self._rows[first_changed:] = self._render(self.frame, self.bars, first_changed)
        return RegionChange(kept, False, tuple(late), gaps)

    def stored(self) -> tuple[list[StoredBar], WindowUnits | None, bool]:
        """What ``restore`` needs: bars, units (None where no bar is closed), and whether the newest bar is open.
        The bars before an open one, and the units, are those from before it came."""
        closed = self._closed
        frame, fitted = (self.frame, self._frame_bars) if closed is None else (closed.frame, closed.frame_bars)
        bars = self.bars if closed is None else [*closed.bars, self.bars[-1]]
        if frame is None:
            return bars, None, closed is not None
        units = WindowUnits(
            bar_seconds=frame.bar_seconds,
            reference=frame.reference,
            unit=frame.unit,
            volume_unit=frame.volume_unit,
            fitted_bars=fitted,
        )
        return bars, units, closed is not None

    def restore(self, bars: Iterable[StoredBar], units: WindowUnits | None, still_open: bool = False) -> None:
        """Become the region that had these bars and units."""
        known = list(bars)
        newest = [known.pop()] if still_open else []
        self.bars, self._closed = known[-self._capacity :], None
        if units is not None:
            self.frame = RegionFrame(
                symbol=self._symbol,
                bar_seconds=units.bar_seconds,
                reference=units.reference,
                unit=units.unit,
                volume_unit=units.volume_unit,
            )
            self._frame_bars = units.fitted_bars
            self._anchor = self._builder.anchor(self.frame)
            self._rows = self._render(self.frame, self.bars)
        self.extend(newest, still_open)

    def next_tokens(self) -> list[int]:
        """Tokens that the region will begin with after the swap that its next bar makes: the second slab.

        They are known once the region is full, because the newest window fixes the next region's units."""
        newest = self.bars[self._capacity - self._window :]
        frame = self._fit(newest)
        tokens = list(self._builder.anchor(frame))
        for row in self._render(frame, newest):
            tokens.extend(row)
        return tokens

    def _undo(self, stored: StoredBar) -> bool:
        """Before a bar comes: the open one closes where a later one follows, and goes where the same comes again;
        True then."""
        closed, self._closed = self._closed, None
        if closed is None or stored.bar.time_us != self.bars[-1].bar.time_us:
            return False
        self.bars, self.frame, self._frame_bars = list(closed.bars), closed.frame, closed.frame_bars
        return True

    def _place(self, stored: StoredBar) -> int:
        """Insert in time order; returns the index from which the region differs."""
        index = len(self.bars)
        while index and self.bars[index - 1].bar.time_us > stored.bar.time_us:
            index -= 1
        if index and self.bars[index - 1].bar.time_us == stored.bar.time_us:
            self.bars[index - 1] = stored
            return index - 1
        self.bars.insert(index, stored)
        return index

    def _follows_a_gap(self, stored: StoredBar) -> bool:
        """Bars are missing between the newest one and this one; before there are units the last step tells."""
        if not self.bars or self.frame is None:
            return False
        length = (self.frame.bar_seconds or 0) * 1_000_000
        if not length and len(self.bars) > 1:
            length = self.bars[-1].bar.time_us - self.bars[-2].bar.time_us
        return 0 < GAP_STEPS * length < stored.bar.time_us - self.bars[-1].bar.time_us

    def _reframe(self, stored: StoredBar, index: int) -> bool:
        """Give the region a new start or new units where it needs them; True when it did. ``index`` is where the
        bar lies."""
        jumps = bool(index) and self._jumps(self.bars[index - 1].bar.close, stored.bar.close)
        if len(self.bars) > self._capacity:
            del self.bars[: -min(self._window + 1, self._capacity)]
            if not self._fits(stored, self._fit(self.bars)):
                self._keep_window()
        elif self.frame is not None and (jumps or not self._fits(stored, self.frame)):
            self._keep_window()
        elif self.frame is not None and not self._frame_bars < self._window <= len(self.bars):
            # While warming up the first units serve; they are fitted once more when the window is complete.
            return False
        self.frame = self._fit(self.bars)
        self._frame_bars = min(len(self.bars), self._window)
        return True

    def _jumps(self, before: float, close: float) -> bool:
        """Within the units' range, but prices as of a split are not to be shown in the units of before it."""
        jump = abs(close - before)
        return self.frame is not None and jump > max(JUMP_SHARE * abs(before), JUMP_UNITS * self.frame.unit)

    @staticmethod
    def _fits(stored: StoredBar, frame: RegionFrame) -> bool:
        return bool(frame.fits(np.array([stored.bar.close]))[0])

    def _keep_window(self) -> None:
        """Outside the unit's range (a split, a crash): a region of the newest window, in its own units."""
        del self.bars[: max(0, len(self.bars) - self._window)]

    def _fit(self, bars: Sequence[StoredBar]) -> RegionFrame:
        return RegionFrame.fit(self._symbol, _columns(bars[: self._window]))

    def _render(self, frame: RegionFrame, bars: Sequence[StoredBar], start: int = 0) -> list[tuple[int, ...]]:
        """Rows of a region's bars from index ``start`` on."""
        before = bars[start - 1].bar.close if start else None
        return [tuple(row) for row in self._builder.bars(frame, _columns(bars[start:]), before).tolist()]


def _columns(bars: Sequence[StoredBar]) -> BarArrays:
    return BarArrays.from_rows(stored.bar for stored in bars)
