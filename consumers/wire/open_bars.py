"""Trades to bars: one partition's open bars, folded a poll at a time with polars.

A bar closes when a trade of its key with a later time comes, never by the wall clock. What becomes of a trade does
not depend on how the trades were grouped into polls, so a replay from the floor gives the same bars.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import polars as pl

from consumers.wire.columns import Trade
from consumers.wire.reasons import RawRecord, Reason
from consumers.wire.records import ParsedItems, ParsedRecord, letter_of, whole
from stream_engine.messages import Bar, Record, Window
from stream_engine.messages.bounds import Finite, NotNegative, Offset, TimeUs
from stream_engine.util.timestamps import rfc3339

BarTime = Literal["start", "end"]

_TRADES = {
    "record": pl.Int64,
    "item": pl.Int64,
    "key": pl.String,
    "time_us": pl.Int64,
    "open": pl.Float64,
    "volume": pl.Float64,
    "offset": pl.Int64,
    "id": pl.String,
    "bound": pl.Int64,
}
_PARTS = ("record", "key", "start", "open", "high", "low", "close", "volume", "first", "last", "id")


REMEMBERED_IDS = 4_096
"""Of one open bar. Ids tell a trade that its producer sent twice, which comes soon after; what was read before is
told by its offset."""
MAX_ID_CHARACTERS = 36
"""A UUID's. Of a longer one its digest is kept."""


class OpenBar(msgspec.Struct):
    """A bar that further trades may change. ``first`` and ``last`` are offsets of its trades, ``ids`` those of
    the newest trades that have one, in their order. ``volume`` is None where no trade had a size. A bar that was
    saved counts its trades anew: ``first`` is None until there is one."""

    start: TimeUs
    open: Finite
    high: Finite
    low: Finite
    close: Finite
    volume: NotNegative | None
    first: Offset | None
    last: Offset
    ids: list[str] = []


@dataclass(frozen=True, slots=True)
class _Fate:
    """Trades by (record, item): too late, or a repeated id."""

    late: set[tuple[int, int]]
    repeated: set[tuple[int, int]]


class TradeBars:
    """Bars of ``bar_seconds``, stamped with their start or end. With ``open_bar`` every poll shows the open bars
    as they stand (the engine replaces a bar of equal time); without it a bar is shown when it closes.

    A closed bar's record has the offset of the trade that closes it, a shown open bar's that of its last trade:
    the newest record that the session then depends on."""

    def __init__(self, bar_seconds: int, open_bar: bool, bar_time: BarTime, quiet_records: int = 20_000) -> None:
        self._length = bar_seconds * 1_000_000
        self._open_bar = open_bar
        self._stamp = self._length if bar_time == "end" else 0
        self._quiet = quiet_records
        self._open: dict[str, OpenBar] = {}
        self._bounds: dict[str, tuple[int, int]] = {}
        self._known: dict[str, int] = {}
        self._shown: deque[tuple[int, int]] = deque()

    def restore(self, windows: Iterable[Window], saved: Mapping[str, OpenBar]) -> None:
        """What the windows hold is known: behind their offsets, trades of earlier bars are late. An open bar that
        was saved goes on, unless its session has a newer bar by now."""
        for window in windows:
            start = window.bars[-1].bar.time_us - self._stamp
            self._bounds[window.session] = window.offset, start if self._open_bar else start + self._length
        for key, bar in saved.items():
            if key not in self._bounds or bar.start >= self._bounds[key][1]:
                bar.ids = [_short(name) for name in bar.ids[-REMEMBERED_IDS:]]
                self._open[key] = bar
                self._known[key] = bar.last

    def due(self, needed: int) -> list[tuple[str, OpenBar]]:
        """Open bars to be saved, and ``floor`` then counts on it: of keys quiet for so long that their first trade
        would hold the floor back. All of their closed bars up to ``needed`` must be in windows already."""
        quiet = []
        for key, bar in self._open.items():
            if bar.first is not None and bar.last < needed and needed - bar.first > self._quiet:
                bar.first = None
                quiet.append((key, bar))
        return quiet

    def floor(self, needed: int) -> int:
        """Where a replay has to start so that every bar record from offset ``needed`` on, and every open bar that
        is not saved, is made of all its trades. ``needed`` never goes back."""
        while self._shown and self._shown[0][0] < needed:
            self._shown.popleft()
        opened = (bar.first for bar in self._open.values() if bar.first is not None)
        return min([needed, *(first for _, first in self._shown), *opened])

    def fold(self, parsed: Sequence[ParsedItems[Trade]]) -> list[ParsedRecord]:
        """The next trades, in the order of their offsets; the result is aligned with ``parsed``."""
        trades = self._frame(parsed)
        fate = self._fate(trades)
        bars = self._bars(trades, fate)
        folded: dict[str, list[RawRecord]] = {}
        done: list[ParsedRecord] = []
        for index, items in enumerate(parsed):
            dead = [
                letter_of(items.raw, item.position, item.received, Reason.LATE, self._late(items.key, item.value))
                for item in items.good
                if (index, item.position) in fate.late
            ]
            taken = [item for item in items.good if (index, item.position) not in fate.late | fate.repeated]
            record = None
            before: tuple[RawRecord, ...] = ()
            if index in bars:
                shown = sorted(bars[index], key=lambda bar: bar.start)
                told = tuple(map(self._message, shown))
                record = Record(
                    key=items.key,
                    offset=items.raw.offset,
                    timestamp_ms=items.raw.timestamp_ms,
                    bars=told,
                    still_open=self._open_bar,
                )
                firsts = (bar.first for bar in shown if bar.first is not None)
                self._shown.append((items.raw.offset, min([items.raw.offset, *firsts])))
                before = tuple(folded.pop(items.key, ()))
            elif taken:
                folded.setdefault(items.key, []).append(items.raw)
            letters = whole(items.raw, (*items.dead, *dead), items.seen)
            repeated = not taken and len(letters) < items.seen
            done.append(
                ParsedRecord(
                    raw=items.raw,
                    record=record,
                    dead=letters,
                    bars_seen=items.seen,
                    folded=before,
                    repeated=repeated,
                )
            )
        # The last trade of each open bar has a record without bars: the engine says of it whether trades may feed
        # the key. So no trade is taken for applied whose bar is refused once it closes. Which trade that is
        # depends on the polls, so the engine answers also where it has applied as far already.
        last = {raws[-1].offset: raws for raws in folded.values()}
        for place, result in enumerate(done):
            if (raws := last.get(result.raw.offset)) is not None:
                claim = Record(parsed[place].key, result.raw.offset, result.raw.timestamp_ms, ())
                done[place] = replace(result, record=claim, folded=tuple(raws[:-1]))
        return done

    def _frame(self, parsed: Sequence[ParsedItems[Trade]]) -> pl.DataFrame:
        """One row a trade, in order: of a record's list by time, then as listed."""
        rows = []
        for index, items in enumerate(parsed):
            offset, bound = items.raw.offset, self._bound(items.key, items.raw.offset)
            for item in sorted(items.good, key=lambda item: item.value.time_us):
                trade, name = item.value, item.fields.get("id")
                # Some feeds call the symbol "id": it is no trade's own.
                text = None if name is None or name == items.key else _short(str(name))
                rows.append(
                    (index, item.position, items.key, trade.time_us, trade.price, trade.size, offset, text, bound)
                )
        start = (pl.col("time_us").floordiv(self._length) * self._length).alias("start")
        return pl.DataFrame(rows, schema=_TRADES, orient="row").with_columns(start)

    def _bound(self, key: str, offset: int) -> int | None:
        """The earliest start of a bar that a trade at this offset may still change."""
        bar, window = self._open.get(key), self._bounds.get(key)
        known = [bar.start] if bar else []
        if window is not None and offset > window[0]:
            known.append(window[1])
        return max(known, default=None)

    def _fate(self, trades: pl.DataFrame) -> _Fate:
        newest = pl.max_horizontal(pl.col("start").cum_max().over("key"), "bound")
        known = {
            (record, item)
            for record, item, key, offset in trades.select("record", "item", "key", "offset").iter_rows()
            if offset <= self._known.get(key, -1)
        }
        late = {row[:2] for row in trades.filter(pl.col("start") < newest).iter_rows()} - known
        repeated = set(known)
        named: dict[tuple[str, int], dict[str, None]] = {}
        columns = ("record", "item", "key", "start", "id")
        with_ids = trades.filter(pl.col("id").is_not_null()).select(columns)
        for record, item, key, start, name in with_ids.iter_rows():
            if (record, item) in late | known:
                continue
            bar = self._open.get(key)
            seen = named.get((key, start))
            if seen is None:
                seen = named[key, start] = dict.fromkeys(bar.ids if bar and bar.start == start else ())
            if name in seen:
                repeated.add((record, item))
                continue
            seen[name] = None
            if len(seen) > REMEMBERED_IDS:  # trade by trade, so that polls of any size judge alike
                del seen[next(iter(seen))]
        return _Fate(late, repeated)

    def _bars(self, trades: pl.DataFrame, fate: _Fate) -> dict[int, list[OpenBar]]:
        """Fold the good trades into the open bars; the bars to show, by the record that shows them."""
        left_out = fate.late | fate.repeated
        good = trades.filter([pair not in left_out for pair in trades.select("record", "item").iter_rows()])
        price, offset = pl.col("open"), pl.col("offset")
        parts = good.with_columns(high=price, low=price, close=price, first=offset, last=offset).select(_PARTS)
        held = [(key, self._open[key]) for key in parts["key"].unique(maintain_order=True) if key in self._open]
        rows = [
            (None, key, b.start, b.open, b.high, b.low, b.close, b.volume, b.first, b.last, None)
            for key, b in held
        ]
        # Open bars come first, so sums run in the order of the trades, however these were polled.
        stacked = pl.concat([pl.DataFrame(rows, schema=parts.schema, orient="row"), parts])
        grouped = stacked.group_by("key", "start", maintain_order=True).agg(
            pl.col("open").first(),
            pl.col("high").max(),
            pl.col("low").min(),
            pl.col("close").last(),
            pl.when(pl.col("volume").is_not_null().any()).then(pl.col("volume").fill_null(0.0).cum_sum().last()),
            pl.col("first").drop_nulls().first(),
            pl.col("last").last(),
            pl.col("id").drop_nulls(),
            pl.col("record").drop_nulls().first().alias("first_record"),
            pl.col("record").drop_nulls().last().alias("last_record"),
        )
        shown: dict[int, list[OpenBar]] = {}
        for row in grouped.iter_rows():
            key, first_record, last_record = row[0], row[-2], row[-1]
            start, opened, high, low, close, volume, first, last, ids = row[1:-2]
            bar = OpenBar(
                start=start,
                open=opened,
                high=high,
                low=low,
                close=close,
                volume=volume,
                first=first,
                last=last,
                ids=ids,
            )
            before = self._open.get(key)
            if before is not None and before.start == bar.start:
                bar.ids = before.ids + bar.ids
            elif before is not None and not self._open_bar:
                shown.setdefault(first_record, []).append(before)
            bar.ids = bar.ids[-REMEMBERED_IDS:]
            if self._open_bar and last_record is not None:
                shown.setdefault(last_record, []).append(bar)
            self._open[key] = bar
        return shown

    def _late(self, key: str, trade: Trade) -> str:
        return f"older than the open bar of {key!r}: trade time {rfc3339(trade.time_us)}"

    def _message(self, bar: OpenBar) -> Bar:
        volume = math.nan if bar.volume is None else bar.volume
        return Bar(bar.start + self._stamp, bar.open, bar.high, bar.low, bar.close, volume)


def _short(name: str) -> str:
    """A trade's id, or what stands for a long one."""
    if len(name) <= MAX_ID_CHARACTERS:
        return name
    return hashlib.blake2b(name.encode(errors="replace"), digest_size=16).hexdigest()
