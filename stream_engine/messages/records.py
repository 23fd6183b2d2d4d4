"""Records of market data, and the windows that hold the newest of them."""

from __future__ import annotations

import msgspec


class Bar(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One bar of market data. ``volume`` is NaN where the source has none."""

    time_us: int
    open: float
    high: float
    low: float
    close: float
    volume: float


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The good bars of one Kafka record; none where it holds trades of a bar that is still open. ``timestamp_ms``
    is the record's own Kafka time stamp. ``still_open``: the newest bar may come again with other values, and what
    it did to a session is then undone."""

    key: str
    offset: int
    timestamp_ms: int
    bars: tuple[Bar, ...]
    still_open: bool = False


class WindowBar(msgspec.Struct, frozen=True, array_like=True):
    """A bar of a window and the record that brought it."""

    bar: Bar
    offset: int
    timestamp_ms: int


class WindowUnits(msgspec.Struct, frozen=True, array_like=True):
    """A region's reference price and units, and how many bars they were fitted to."""

    bar_seconds: int | None
    reference: float
    unit: float
    volume_unit: float
    fitted_bars: int


class Window(msgspec.Struct, frozen=True):
    """A session's region as it stood after record ``offset``: with the records that follow, it reproduces the
    token log exactly. Kept in a compacted topic, so that a rebuild need not read the log from the region's
    first bar. Without bars it is a deletion. ``still_open``: the newest bar is open, and the others and the units
    (None where there are no others) are those from before it came."""

    session: str
    offset: int
    timestamp_ms: int
    swaps: int
    units: WindowUnits | None
    bars: tuple[WindowBar, ...]
    still_open: bool = False


class RecordCounts(msgspec.Struct, frozen=True):
    """What became of a partition's live records, once acknowledged: ``consumed`` is the sum of the others. A
    record of several bars is ``applied`` if one of them is; bars are counted apart."""

    consumed: int = 0
    applied: int = 0
    dead_lettered: int = 0
    duplicates: int = 0
    late: int = 0


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """A record that the engine refused: ``reason`` is ``late`` or ``second_source``, of a standing query the code
    of the error that the API would answer with."""

    offset: int
    reason: str
    detail: str
