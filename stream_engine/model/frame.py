"""The units of a region: how prices and volumes become small integers, the same for one bar and for many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RENDERING = "levels-2"
"""Version of the rendering below; part of a profile's digest."""

FIT_BARS = 32
"""Bars at a region's start that fix its unit and its reference."""

LEVELS_A_UNIT = 8
"""Levels are eighths of a unit."""

MAX_LEVEL = 560
"""Largest level either side of the reference."""

FIT_LEVEL = 448
"""Largest level that the fitted bars themselves may take: the rest is head room for the bars to come."""

UNIT_RANGE = (1e-300, 1e300)
"""Units stay inside it, so that no finite price makes a level that is not a number."""

# Edges of a move's size in units: steps of a twenty-fifth near zero, of a tenth of the size further out, up to the
# widest move that two levels can make. A comparison with fixed edges gives the same bucket in any vector width.
MOVE_EDGES: Floats = 0.4 * np.sinh(np.arange(1, 100) / 15.0)

MAX_MOVE = len(MOVE_EDGES) + 1
"""Largest bucket of a move; 0 is no move at all, negative ones are moves down."""

NO_MOVE = MAX_MOVE + 1
"""In place of a move's bucket: the region's first bar has nothing before it."""

VOLUME_EDGES: Floats = np.exp2(np.arange(-8.0, 6.01, 1 / 12))

VOLUMES = len(VOLUME_EDGES) + 2
"""Buckets of volume, in eighth steps of log2; bucket 0 means none."""


class BarRow(Protocol):
    """One bar: time in microseconds since the epoch, prices, volume (nan where there is none)."""

    @property
    def time_us(self) -> int: ...
    @property
    def open(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def close(self) -> float: ...
    @property
    def volume(self) -> float: ...


@dataclass(frozen=True, slots=True)
class BarArrays:
    """Bars as columns of equal length: time in microseconds, prices, volume (nan = none)."""

    time_us: Ints
    open: Floats
    high: Floats
    low: Floats
    close: Floats
    volume: Floats

    @classmethod
    def from_rows(cls, rows: Iterable[BarRow]) -> BarArrays:
        """Columns of anything that has a bar's attributes."""
        bars = list(rows)
        return cls(
            np.array([bar.time_us for bar in bars], dtype=np.int64),
            *(
                np.array([getattr(bar, name) for bar in bars], dtype=np.float64)
                for name in ("open", "high", "low", "close", "volume")
            ),
        )

    def __len__(self) -> int:
        return len(self.close)

    def __getitem__(self, part: slice) -> BarArrays:
        return BarArrays(
            self.time_us[part],
            self.open[part],
            self.high[part],
            self.low[part],
            self.close[part],
            self.volume[part],
        )


@dataclass(frozen=True, slots=True)
class RegionFrame:
    """Reference price and units of one region; fixed when the region is built, changed only at a swap."""

    symbol: str
    bar_seconds: int | None
    reference: float
    unit: float
    volume_unit: float

    @classmethod
    def fit(cls, symbol: str, bars: BarArrays) -> RegionFrame:
        """Fit the units to the first (at most `FIT_BARS`) bars of a region.

        reference: the first close. unit: the median of |one-bar close difference| over the non-zero ones, raised
        where needed so that the fitted closes stay within `FIT_LEVEL` levels. Without a non-zero difference:
        the median non-zero range (high - low); without that, a ten-thousandth of the reference; for a reference
        of zero, 1. volume_unit: the median positive volume, else 1. bar_seconds: the median time step, None for
        a single bar. Raises ValueError for no bars.
        """
        if not len(bars):
            raise ValueError("a region's units need at least one bar")
        first = bars[:FIT_BARS]
        reference = float(first.close[0])
        with np.errstate(over="ignore"):
            unit = _median_nonzero(np.abs(np.diff(first.close)))
            if unit is None:
                unit = _median_nonzero(np.abs(first.high - first.low))
            if unit is None:
                unit = abs(reference) * 1e-4 or 1.0
            span = float(np.max(np.abs(first.close - reference)))
        unit = min(max(unit, LEVELS_A_UNIT * span / FIT_LEVEL, UNIT_RANGE[0]), UNIT_RANGE[1])
        steps = np.diff(first.time_us)
        bar_seconds = max(1, round(float(np.median(steps)) / 1e6)) if len(steps) else None
        volume = first.volume[np.isfinite(first.volume)]
        return cls(symbol, bar_seconds, reference, unit, _median_nonzero(volume[volume > 0]) or 1.0)

    def _raw_levels(self, close: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.rint((np.asarray(close, dtype=np.float64) - self.reference) / (self.unit / LEVELS_A_UNIT))

    def levels(self, close: Floats) -> Ints:
        """Closes in quarter units from the reference, clipped to +-`MAX_LEVEL`; any shape."""
        return np.clip(self._raw_levels(close), -MAX_LEVEL, MAX_LEVEL).astype(np.int64)

    def fits(self, close: Floats) -> NDArray[np.bool_]:
        """Whether each close lies inside the level range, so that clipping would not change it."""
        return np.abs(self._raw_levels(close)) <= MAX_LEVEL

    def moves(self, close: Floats, before: float | None) -> Ints:
        """Signed bucket of each close's move from the close before it, [n]; `before` is the first one's.

        0 for no move, -`MAX_MOVE` .. `MAX_MOVE` by size in units; `NO_MOVE` for the first where `before` is None.
        """
        closes = np.asarray(close, dtype=np.float64)
        with np.errstate(over="ignore"):
            steps = np.diff(closes, prepend=closes[:1] if before is None else before)
            sizes = np.searchsorted(MOVE_EDGES, np.abs(steps) / self.unit, side="right") + 1
        buckets = (np.sign(steps) * sizes).astype(np.int64)
        if before is None:
            buckets[:1] = NO_MOVE
        return buckets

    def volumes(self, volume: Floats) -> Ints:
        """Bucket of each volume against the volume unit, 0 for none (nan or zero); any shape."""
        amounts = np.asarray(volume, dtype=np.float64)
        with np.errstate(over="ignore"):
            buckets = np.searchsorted(VOLUME_EDGES, amounts / self.volume_unit, side="right") + 1
        return np.where(amounts > 0, buckets, 0).astype(np.int64)


def _median_nonzero(values: Floats) -> float | None:
    nonzero = values[values != 0]
    if not len(nonzero):
        return None
    with np.errstate(over="ignore"):
        median = float(np.median(nonzero))
        # Of an even number it is the mean of two, and their sum may be more than any number.
        return median if np.isfinite(median) else 2.0 * float(np.median(nonzero / 2))
