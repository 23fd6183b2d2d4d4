"""Records of market data, and the windows that hold the newest of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from stream_engine.messages.bounds import (
    MAX_BARS,
    MAX_FLOAT,
    Count,
    Finite,
    Id,
    Name,
    Offset,
    OffsetBefore,
    Positive,
    Text,
    TimestampMs,
    TimeUs,
    Unit,
)


class Bar(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One bar of market data. ``volume`` is NaN where the source has none."""

    time_us: TimeUs
    open: Finite
    high: Finite
    low: Finite
    close: Finite
    volume: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.volume <= MAX_FLOAT and self.volume == self.volume:
            raise ValueError("a volume is finite and not negative, or NaN")


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The good bars of one Kafka record; none where it holds trades of a bar that is still open. ``timestamp_ms``
    is the record's own Kafka time stamp. ``still_open``: the newest bar may come again with other values, and what
    it did to a session is then undone."""

    key: Id
    offset: Offset
    timestamp_ms: TimestampMs
    bars: Annotated[tuple[Bar, ...], Meta(max_length=MAX_BARS)]
    still_open: bool = False


class WindowBar(msgspec.Struct, frozen=True, array_like=True):
    """A bar of a window and the record that brought it."""

    bar: Bar
    offset: Offset
    timestamp_ms: TimestampMs


class WindowUnits(msgspec.Struct, frozen=True, array_like=True):
    """A region's reference price and units, and how many bars they were fitted to."""

    bar_seconds: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None
    reference: Finite
    unit: Unit
    volume_unit: Positive
    fitted_bars: Annotated[int, Meta(ge=0, le=MAX_BARS)]


class Window(msgspec.Struct, frozen=True):
    """A session's region as it stood after record ``offset``: with the records that follow, it reproduces the
    token log exactly. Kept in a compacted topic, so that a rebuild need not read the log from the region's
    first bar. Without bars it is a deletion. ``still_open``: the newest bar is open, and the others and the units
    (None where there are no others) are those from before it came. ``asleep``: the session sleeps as of it, and
    goes on to after a restart."""

    session: Id
    offset: OffsetBefore
    timestamp_ms: TimestampMs
    swaps: Count
    units: WindowUnits | None
    bars: Annotated[tuple[WindowBar, ...], Meta(max_length=MAX_BARS)]
    still_open: bool = False
    asleep: bool = False

    def __post_init__(self) -> None:
        closed = len(self.bars) - self.still_open
        if closed < 0 or (self.units is None) != (closed == 0):
            raise ValueError("a window has units where it has closed bars, and only there")
        if any(after.bar.time_us <= before.bar.time_us for before, after in pairwise(self.bars)):
            raise ValueError("the times of a window's bars ascend")
        if any(stored_bar.offset > self.offset for stored_bar in self.bars):
            raise ValueError("no bar of a window is of a later record than the window")


class RecordCounts(msgspec.Struct, frozen=True):
    """What became of a partition's live records, once acknowledged: ``consumed`` is the sum of the others. A
    record of several bars is ``applied`` if one of them is; bars are counted apart."""

    consumed: Count = 0
    applied: Count = 0
    dead_lettered: Count = 0
    duplicates: Count = 0
    late: Count = 0


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """A record that the engine refused: ``reason`` is ``late`` or ``second_source``, of a standing query the code
    of the error that the API would answer with."""

    offset: Offset
    reason: Name
    detail: Text
