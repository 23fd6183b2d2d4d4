"""Numbers, times and the rules of a bar or a trade, checked as columns with polars.

The schema is explicit: a column never changes its type with the data, and a row is never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from consumers.reasons import Reason
from stream_engine.messages import Bar

BAR_NUMBERS = ("open", "high", "low", "close", "volume")
TRADE_NUMBERS = ("price", "size")
DAY_US = 86_400_000_000
EARLIEST_US = -25_567 * DAY_US
"""1900-01-01: daily series go back to the nineteen-twenties, wrong units go back further."""
LATEST_US = 84_006 * DAY_US
"""2200-01-01."""
FUTURE_US = 7 * DAY_US
"""A bar may be stamped this much later than its Kafka record: one far ahead would make all later bars late."""

_RFC3339 = (
    r"^(?<day>\d{4}-\d{2}-\d{2})[Tt ](?<clock>\d{2}:\d{2}:\d{2})(?:[.](?<fraction>\d+))?"
    r"(?:[Zz]|(?<sign>[+-])(?<hours>\d{2}):?(?<minutes>\d{2}))$"
)
_INTEGER = r"^[+-]?\d{1,18}$|^[+-]?[1-8]\d{18}$"
_DECIMAL = r"^[+-]?\d+[.]?\d*(?:[eE][+-]?\d+)?$"


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
        self._record_ms: list[int] = []

    def __len__(self) -> int:
        return len(self._record_ms)

    def append(self, fields: dict[str, Any], record_ms: int) -> None:
        """One item: values are int, float or str, volume or size may be absent; ``record_ms`` is its record's
        time."""
        for name, numbers in self._numbers.items():
            value = fields.get(name)
            numbers.append(None if value is None or isinstance(value, str) else _to_float(value))
            self._texts[name].append(value if isinstance(value, str) else None)
        time = fields["time"]
        exact = isinstance(time, int) and abs(time) < 2**63
        self._integers.append(time if exact else None)
        self._decimals.append(None if exact or isinstance(time, str) else _to_float(time))
        self._texts["time"].append(time if isinstance(time, str) else None)
        self._record_ms.append(record_ms)

    def frame(self) -> pl.DataFrame:
        data: dict[str, list[Any]] = {"integer": self._integers, "decimal": self._decimals}
        schema: dict[str, Any] = {"integer": pl.Int64, "decimal": pl.Float64}
        for name, numbers in self._numbers.items():
            data[name], schema[name] = numbers, pl.Float64
        for name, texts in self._texts.items():
            data[f"{name}_text"], schema[f"{name}_text"] = texts, pl.String
        data["record_ms"], schema["record_ms"] = self._record_ms, pl.Int64
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


def time_us(integer: pl.Expr, decimal: pl.Expr, text: pl.Expr) -> pl.Expr:
    """Microseconds since the epoch from an integer, a decimal, or text: RFC 3339, or an epoch as digits.

    An epoch's unit (s, ms, us, ns) is told by its size: seconds reach 1e11 in the year 5138, milliseconds 1e14,
    and so on. Null where it cannot be understood."""
    integer = pl.coalesce(integer, pl.when(text.str.contains(_INTEGER)).then(text.cast(pl.Int64, strict=False)))
    decimal = pl.coalesce(decimal, pl.when(text.str.contains(_DECIMAL)).then(text.cast(pl.Float64, strict=False)))
    size = integer.abs()
    from_integer = (
        pl.when(size < 10**11)
        .then(integer * 1_000_000)
        .when(size < 10**14)
        .then(integer * 1_000)
        .when(size < 10**17)
        .then(integer)
        .otherwise(integer.floordiv(1_000))
    )
    size = decimal.abs()
    scaled = (
        pl.when(size < 1e11)
        .then(decimal * 1e6)
        .when(size < 1e14)
        .then(decimal * 1e3)
        .when(size < 1e17)
        .then(decimal)
        .otherwise(decimal / 1e3)
    )
    from_decimal = scaled.round().cast(pl.Int64, strict=False)
    return pl.coalesce(from_integer, from_decimal, _rfc3339(text))


def _rfc3339(text: pl.Expr) -> pl.Expr:
    part = text.str.extract_groups(_RFC3339).struct
    clock = pl.concat_str(part.field("day"), pl.lit(" "), part.field("clock"))
    base = clock.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False).cast(pl.Int64)
    # Digits beyond a microsecond are cut: truncation keeps the order of events.
    fraction = part.field("fraction").fill_null("0").str.slice(0, 6).str.pad_end(6, "0").cast(pl.Int64)
    hours = part.field("hours").cast(pl.Int64).fill_null(0)
    minutes = part.field("minutes").cast(pl.Int64).fill_null(0)
    sign = pl.when(part.field("sign") == "-").then(-1).otherwise(1)
    legal = (hours < 24) & (minutes < 60)
    return pl.when(legal).then(base + fraction - sign * (hours * 60 + minutes) * 60_000_000)


def _reason(prices: Sequence[str], amount: str, between: Sequence[tuple[pl.Expr, Reason]]) -> pl.Expr:
    """The first rule that a row breaks; null for a good row. Zero and negative prices are legal; the ``amount``,
    volume or size, may be absent. ``between`` are rules on the prices, once they are finite."""
    values = [pl.col(name) for name in prices]
    volume, unread = pl.col(amount), pl.col(amount).is_null() & pl.col(f"{amount}_text").is_not_null()
    time, record = pl.col("time_us"), pl.col("record_ms")
    rules = [
        (pl.any_horizontal(unread, *(price.is_null() for price in values)), Reason.NOT_A_NUMBER),
        (
            ~pl.all_horizontal(*(price.is_finite() for price in values), volume.is_finite().fill_null(True)),
            Reason.NOT_FINITE,
        ),
        *between,
        ((volume < 0).fill_null(False), Reason.NEGATIVE_VOLUME),
        (time.is_null() | ~time.is_between(EARLIEST_US, LATEST_US), Reason.TIME_INVALID),
        ((record >= 0) & (time > record * 1_000 + FUTURE_US), Reason.TIME_IN_FUTURE),
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
    time = next(row[name] for name in ("time_text", "integer", "decimal") if row[name] is not None)
    match reason:
        case Reason.NOT_A_NUMBER:
            unread = {name: row[f"{name}_text"] for name in numbers if row[name] is None}
            bad = ", ".join(f"{name} {text[:40]!r}" for name, text in unread.items() if text is not None)
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
            return (
                f"the time {str(time)[:60]!r} is neither RFC 3339 with its offset (2020-04-20T14:30:00Z) nor an "
                "epoch in s, ms, us or ns, between 1900 and 2200"
            )
        case _:
            return (
                f"the time {str(time)[:60]!r} is over {FUTURE_US // DAY_US} days later than the record itself: "
                "check the unit and the producer's clock"
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
_BAR_VALUES, _BAR_REASON = _values(BAR_NUMBERS), _reason(BAR_NUMBERS[:4], "volume", _bar_rules())
_TRADE_VALUES, _TRADE_REASON = _values(TRADE_NUMBERS), _reason(TRADE_NUMBERS[:1], "size", ())
