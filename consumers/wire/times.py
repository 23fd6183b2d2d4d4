"""The time of a record's item: read where it can only be one thing, refused in words where it may be two.

A time names its offset (RFC 3339), or is an epoch, or is a date alone (midnight UTC). Compact dates, clocks,
serial numbers and ids are numbers too: what may be one of them is not taken for an epoch.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import polars as pl

SMALLEST_EPOCH = 10**7
"""1970-04-26 in seconds. Below lie ids, counters, clocks (HHMMSS) and serial numbers of days."""

_RFC3339 = (
    r"^(?<day>\d{4}-\d{2}-\d{2})[Tt ](?<clock>\d{2}:\d{2}:\d{2})(?:[.](?<fraction>\d+))?"
    r"(?:[Zz]|(?<sign>[+-])(?<hours>\d{2})(?::?(?<minutes>\d{2}))?)$"
)
_DATE = r"^\d{4}-\d{2}-\d{2}$"
# An epoch is never written with a zero in front; a clock and a day-first date are.
_INTEGER = r"^[+-]?(?:0|[1-9]\d{0,17})$|^[+-]?[1-8]\d{18}$"
_DECIMAL = r"^[+-]?(?:0|[1-9]\d*)[.]?\d*(?:[eE][+-]?\d+)?$"
_EXACT = 2**53


def time_us(integer: pl.Expr, decimal: pl.Expr, text: pl.Expr) -> pl.Expr:
    """Microseconds since the epoch from an integer, a decimal, or text: RFC 3339, a date, or a number as digits.

    An epoch's unit (s, ms, us, ns) is told by its size: seconds reach 1e11 in the year 5138, milliseconds 1e14,
    and so on. Eight digits that are a calendar day (YYYYMMDD) are that day. Null where it cannot be understood, or
    may be something else as well."""
    integer = pl.coalesce(integer, pl.when(text.str.contains(_INTEGER)).then(text.cast(pl.Int64, strict=False)))
    decimal = pl.coalesce(decimal, pl.when(text.str.contains(_DECIMAL)).then(text.cast(pl.Float64, strict=False)))
    whole = (decimal == decimal.floor()) & (decimal.abs() < _EXACT)
    integer = pl.coalesce(integer, pl.when(whole).then(decimal).cast(pl.Int64, strict=False))
    fraction = pl.when(~whole).then(decimal)
    return pl.coalesce(
        _compact_day(integer),
        pl.when(~_no_epoch(integer)).then(_from_integer(integer)),
        pl.when(~_no_epoch(fraction)).then(_from_decimal(fraction)),
        _rfc3339(text),
        pl.when(text.str.contains(_DATE)).then(_microseconds(text, "%Y-%m-%d")),
    )


def unread(value: Any) -> str:
    """What is wrong with a time that was not understood, in words that say what to send."""
    shown = str(value).strip()[:60]
    wanted = "send RFC 3339 with its offset (2020-04-20T14:30:00Z) or an epoch in s, ms, us or ns, 1900 to 2200"
    digits = re.fullmatch(r"(\d+)(?:[.]0*)?", shown)
    if digits and (told := _told_of_digits(digits[1])):
        return f"the time {shown!r} {told}; {wanted}"
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}([.]\d+)?)?", shown):
        return f"the time {shown!r} does not say its offset; {wanted}"
    return f"the time {shown!r} is neither RFC 3339 nor an epoch; {wanted}"


def _told_of_digits(digits: str) -> str | None:
    for length, form in ((12, "%Y%m%d%H%M"), (14, "%Y%m%d%H%M%S"), (17, "%Y%m%d%H%M%S")):
        if len(digits) == length:
            try:
                meant = datetime.strptime(digits[:14], form)
            except ValueError:
                continue
            return f"looks like {meant:%Y-%m-%d %H:%M:%S} as a compact date, which does not say its offset"
    if len(digits) == 8:
        return "may be a date, but not one of the form YYYYMMDD"
    if digits.startswith("0") or int(digits) < SMALLEST_EPOCH:
        return "looks like an id, a counter, a clock or a serial number, not like an epoch"
    return "may be a compact date or an epoch in ms" if len(digits) == 12 else None


def _no_epoch(number: pl.Expr) -> pl.Expr:
    """Whether a number may be an id, a clock, a serial number or a compact date; true of null."""
    head, tail = number.floordiv(10_000), number.floordiv(1) % 10_000
    days = (head.floordiv(100).is_between(1, 31) & (head % 100).is_between(1, 31)) & tail.is_between(1900, 2199)
    eight = number.is_between(10**7, 10**8 - 1) & (head.is_between(1900, 2199) | days)
    twelve = number.is_between(1900 * 10**8, 2200 * 10**8 - 1)
    return (number.is_between(0, SMALLEST_EPOCH - 1) | eight | twelve).fill_null(True)


def _compact_day(integer: pl.Expr) -> pl.Expr:
    looks = integer.is_between(1900_01_01, 2199_12_31)
    return pl.when(looks).then(_microseconds(integer.cast(pl.String), "%Y%m%d"))


def _microseconds(text: pl.Expr, form: str) -> pl.Expr:
    return text.str.to_datetime(form, time_unit="us", strict=False).cast(pl.Int64)


def _from_integer(integer: pl.Expr) -> pl.Expr:
    size = integer.abs()
    return (
        pl.when(size < 10**11)
        .then(integer * 1_000_000)
        .when(size < 10**14)
        .then(integer * 1_000)
        .when(size < 10**17)
        .then(integer)
        .otherwise(integer.floordiv(1_000))
    )


def _from_decimal(decimal: pl.Expr) -> pl.Expr:
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
    return scaled.round().cast(pl.Int64, strict=False)


def _rfc3339(text: pl.Expr) -> pl.Expr:
    part = text.str.extract_groups(_RFC3339).struct
    base = _microseconds(pl.concat_str(part.field("day"), pl.lit(" "), part.field("clock")), "%Y-%m-%d %H:%M:%S")
    # Digits beyond a microsecond are cut: truncation keeps the order of events.
    fraction = part.field("fraction").fill_null("0").str.slice(0, 6).str.pad_end(6, "0").cast(pl.Int64)
    hours = part.field("hours").cast(pl.Int64).fill_null(0)
    minutes = part.field("minutes").cast(pl.Int64).fill_null(0)
    sign = pl.when(part.field("sign") == "-").then(-1).otherwise(1)
    legal = (hours < 24) & (minutes < 60)
    return pl.when(legal).then(base + fraction - sign * (hours * 60 + minutes) * 60_000_000)
