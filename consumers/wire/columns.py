"""Numbers, times and the rules of a bar or a trade, checked as columns with polars.

The schema is explicit: a column never changes its type with the data, and a row is never dropped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from consumers.wire.reasons import Reason
from consumers.wire.times import time_us, unread
from stream_engine.messages import Bar

BAR_NUMBERS = ("open", "high", "low", "close", "volume")
TRADE_NUMBERS = ("price", "size")
DAY_US = 86_400_000_000
EARLIEST_US = -25_567 * DAY_US
"""1900-01-01: daily series go back to the nineteen-twenties, wrong units go back further."""
LATEST_US = 84_006 * DAY_US
"""2200-01-01."""
BAR_AHEAD_US = 7 * DAY_US
"""A bar may be stamped this much later than its record, as a week's is that is stamped with its end. One far ahead
would make all later bars late."""
TRADE_AHEAD_US = DAY_US
"""A trade has happened; a clock or an offset that is wrong is wrong by less than a day."""


class Trade(NamedTuple):
    """One print. ``size`` is None where the source has none."""

    time_us: int
    price: float
    size: float | None


class Columns:
    """Bars or trades gathered for one pass. A value goes where its JSON type belongs: a number, or text yet to be
    parsed."""

    def __init__(self, numbers: Sequence[str]) -> None:
        self._numbers: dict[str, list[float | None]] = {name: [] for name in numbers}
        self._texts: dict[str, list[str | None]] = {name: [] for name in (*numbers, "time")}
        self._integers: list[int | None] = []
        self._decimals: list[float | None] = []
        self._known_ms: list[int] = []
        self._now_ms = time.time_ns() // 1_000_000

    def __len__(self) -> int:
        return len(self._known_ms)

    def append(self, fields: dict[str, Any], record_ms: int) -> None:
        """One item: values are int, float or str, volume or size may be absent; ``record_ms`` is its record's
        time stamp: where it has none, or one that is itself ahead of the clock, the clock's counts."""
        for name, numbers in self._numbers.items():
            value = fields.get(name)
            numbers.append(None if value is None or isinstance(value, str) else _to_float(value))
            self._texts[name].append(value if isinstance(value, str) else None)
        stamp = fields["time"]
        exact = isinstance(stamp, int) and abs(stamp) < 2**63
        self._integers.append(stamp if exact else None)
        self._decimals.append(None if exact or isinstance(stamp, str) else _to_float(stamp))
        self._texts["time"].append(stamp if isinstance(stamp, str) else None)
        self._known_ms.append(record_ms if 0 <= record_ms <= self._now_ms else self._now_ms)

    def frame(self) -> pl.DataFrame:
        data: dict[str, list[Any]] = {"integer": self._integers, "decimal": self._decimals}
        schema: dict[str, Any] = {"integer": pl.Int64, "decimal": pl.Float64}
        for name, numbers in self._numbers.items():
            data[name], schema[name] = numbers, pl.Float64
        for name, texts in self._texts.items():
            data[f"{name}_text"], schema[f"{name}_text"] = texts, pl.String
        data["known_ms"], schema["known_ms"] = self._known_ms, pl.Int64
        return pl.DataFrame(data, schema=schema)


def validate_bars(columns: Columns) -> Iterator[Bar | tuple[Reason, str]]:
    """A bar, or the reason and what to do about it, for each row in its order."""
    if not len(columns):
        return
    frame = columns.frame().with_columns(*_BAR_VALUES).with_columns(_BAR_REASON)
    for row in frame.iter_rows(named=True):
        if row["reason"] is None:
            volume = row["volume"]
            yield Bar(
                row["time_us"],
                row["open"],
                row["high"],
                row["low"],
                row["close"],
                math.nan if volume is None else volume,
            )
        else:
            reason = Reason(row["reason"])
            yield reason, _detail(reason, row, BAR_NUMBERS)


def validate_trades(columns: Columns) -> Iterator[Trade | tuple[Reason, str]]:
    """The same for trades."""
    if not len(columns):
        return
    frame = columns.frame().with_columns(*_TRADE_VALUES).with_columns(_TRADE_REASON)
    for row in frame.iter_rows(named=True):
        if row["reason"] is None:
            yield Trade(row["time_us"], row["price"], row["size"])
        else:
            reason = Reason(row["reason"])
            yield reason, _detail(reason, row, TRADE_NUMBERS)


def _reason(
    prices: Sequence[str], amount: str, ahead_us: int, between: Sequence[tuple[pl.Expr, Reason]]
) -> pl.Expr:
    """The first rule that a row breaks; null for a good row. Zero and negative prices are legal; the ``amount``,
    volume or size, may be absent. ``between`` are rules on the prices, once they are finite."""
    values = [pl.col(name) for name in prices]
    volume, odd = pl.col(amount), pl.col(amount).is_null() & pl.col(f"{amount}_text").is_not_null()
    stamp, known = pl.col("time_us"), pl.col("known_ms")
    rules = [
        (pl.any_horizontal(odd, *(price.is_null() for price in values)), Reason.NOT_A_NUMBER),
        (
            ~pl.all_horizontal(*(price.is_finite() for price in values), volume.is_finite().fill_null(True)),
            Reason.NOT_FINITE,
        ),
        *between,
        ((volume < 0).fill_null(False), Reason.NEGATIVE_VOLUME),
        (stamp.is_null() | ~stamp.is_between(EARLIEST_US, LATEST_US), Reason.TIME_INVALID),
        (stamp.floordiv(1_000) - ahead_us // 1_000 > known, Reason.TIME_IN_FUTURE),
    ]
    return pl.coalesce(*(pl.when(broken).then(pl.lit(reason.value)) for broken, reason in rules)).alias("reason")


def _bar_rules() -> list[tuple[pl.Expr, Reason]]:
    low, high = pl.col("low"), pl.col("high")
    return [
        (high < low, Reason.HIGH_BELOW_LOW),
        (
            ~pl.all_horizontal(pl.col(name).is_between(low, high) for name in ("open", "close")),
            Reason.OUTSIDE_RANGE,
        ),
    ]


def _detail(reason: Reason, row: dict[str, Any], numbers: Sequence[str]) -> str:
    received = next(row[name] for name in ("time_text", "integer", "decimal") if row[name] is not None)
    match reason:
        case Reason.NOT_A_NUMBER:
            texts = {name: row[f"{name}_text"] for name in numbers if row[name] is None}
            bad = ", ".join(f"{name} {text[:40]!r}" for name, text in texts.items() if text is not None)
            return f"{bad}: not a number; use digits and a decimal point, no separators"
        case Reason.NOT_FINITE:
            bad = ", ".join(n for n in numbers if row[n] is not None and not math.isfinite(row[n]))
            return f"{bad}: not finite; leave out what has no price, and send null for an unknown {numbers[-1]}"
        case Reason.HIGH_BELOW_LOW:
            return f"high {row['high']} is below low {row['low']}: check the order of the source's columns"
        case Reason.OUTSIDE_RANGE:
            return (
                f"open {row['open']} or close {row['close']} lies outside low {row['low']} .. high {row['high']}: "
                "correct the source"
            )
        case Reason.NEGATIVE_VOLUME:
            return f"{numbers[-1]} {row[numbers[-1]]} is negative: send null where it is unknown"
        case Reason.TIME_INVALID:
            return unread(received)
        case _:
            bound = BAR_AHEAD_US if numbers is BAR_NUMBERS else TRADE_AHEAD_US
            return (
                f"the time {str(received)[:60]!r} is over {bound // DAY_US} days later than the record itself, or "
                "than the clock: check its unit, its offset and the producer's clock"
            )


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of over 308 digits
        return math.inf if value > 0 else -math.inf


def _values(numbers: Sequence[str]) -> tuple[pl.Expr, ...]:
    return (
        *(
            pl.coalesce(name, pl.col(f"{name}_text").str.strip_chars().cast(pl.Float64, strict=False)).alias(name)
            for name in numbers
        ),
        time_us(pl.col("integer"), pl.col("decimal"), pl.col("time_text").str.strip_chars()).alias("time_us"),
    )


# Building an expression costs as much as applying it to a few rows, and a live feed polls a few rows at a time.
_BAR_VALUES, _BAR_REASON = _values(BAR_NUMBERS), _reason(BAR_NUMBERS[:4], "volume", BAR_AHEAD_US, _bar_rules())
_TRADE_VALUES, _TRADE_REASON = _values(TRADE_NUMBERS), _reason(TRADE_NUMBERS[:1], "size", TRADE_AHEAD_US, ())
