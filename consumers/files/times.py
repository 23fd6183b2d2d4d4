"""The times of a file, from one column or from a date and a clock, as microseconds since the epoch.

What one row leaves open, the whole column may decide: whether the day or the month comes first, how long a clock
is. What it does not decide is refused. A clock without an offset is taken as UTC, a date as its midnight.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

import polars as pl

from consumers.wire.columns import EARLIEST_US, LATEST_US
from consumers.wire.times import time_us, unread

DateOrder = Literal["day-first", "month-first"]


class FeedError(ValueError):
    """The file holds no bars that can be read; the message says what was looked for."""


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = (
    r"(?:(?P<y>\d{4})(?P<s>[-/.])(?P<m>\d{1,2})(?P=s)(?P<d>\d{1,2})"
    r"|(?P<a>\d{1,2})(?P<sep>[-/.])(?P<b>\d{1,2})(?P=sep)(?P<y2>\d{4})"
    r"|(?P<d3>\d{1,2})[- ](?P<mon3>[A-Za-z]{3,9})[- ,]+(?P<y3>\d{4})"
    r"|(?P<mon4>[A-Za-z]{3,9})[- ](?P<d4>\d{1,2})[- ,]+(?P<y4>\d{4})"
    r"|(?P<packed>(?:19|20|21)\d{6}))"
)
_CLOCK = (
    r"(?:(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,](?P<f>\d{1,9}))?)?(?:\s*(?P<half>[AaPp][Mm]))?"
    r"|(?P<digits>\d{4}(?:\d{2}(?:\d{3})?)?))"
)
_ZONE = (
    r"(?P<zone>Z|z|UTC|GMT|(?:UTC|GMT)?(?P<sign>[+-])(?P<zh>\d{1,2})(?::?(?P<zm>\d{2}))?"
    r"|[A-Za-z_]+(?:/[A-Za-z_]+)+)"
)
_WHOLE = re.compile(rf"{_DATE}(?:(?:[Tt]|\s+|(?<=\d{{8}})){_CLOCK})?\s*{_ZONE}?")
_ONLY_CLOCK = re.compile(rf"{_CLOCK}\s*{_ZONE}?")
_SHORT_CLOCK = re.compile(r"\d{1,6}")


@dataclass(frozen=True, slots=True)
class _Read:
    """A written time: ``first`` and ``second`` are month and day, in the order that ``open`` leaves open."""

    year: int
    first: int
    second: int
    open: str | None
    clock: tuple[int, int, int, int] | None
    zone: str | None
    offset_min: int | None


def kind_of(values: Iterable[Any]) -> Literal["date", "clock", "whole"]:
    """What a column holds, judged by all its values that are there."""
    seen: set[str] = set()
    for value in values:
        text = str(value).strip()
        if text and value is not None:
            if _ONLY_CLOCK.fullmatch(text) and ":" in text:
                seen.add("clock")
            elif (match := _WHOLE.fullmatch(text)) and match["H"] is None and match["digits"] is None:
                seen.add("date")
            else:
                seen.add("clock" if _SHORT_CLOCK.fullmatch(text) else "whole")
    return "date" if seen == {"date"} else "clock" if seen == {"clock"} else "whole"


def joined(dates: Sequence[Any], clocks: Sequence[Any]) -> list[Any]:
    """One column of two. A clock of digits may have lost its leading zeros: the longest says what it counts."""
    texts = ["" if clock is None else str(clock).strip() for clock in clocks]
    bare = [text for text in texts if text.isdecimal()]
    length = 6 if any(len(text) > 4 for text in bare) else 4
    filled = (text.zfill(length) if text.isdecimal() else text for text in texts)
    return [f"{str(date).strip()} {clock}".strip() for date, clock in zip(dates, filled, strict=True)]


def read_times(values: Sequence[Any], order: DateOrder | None, where: Callable[[int], str]) -> list[int]:
    """Microseconds since the epoch. ``where`` names a row in messages. Raises FeedError for the first time that
    cannot be read, and where the values do not say what they mean."""
    read = [_read(value) if isinstance(value, str | int) else None for value in values]
    order = order or _order(read)
    clocks = [time for time in read if time is not None and time.clock is not None]
    if 0 < sum(time.zone is None for time in clocks) < len(clocks):
        raise FeedError(f"{where(0)}: some times say their offset and some do not: write it for all")
    plain: list[Any] = []
    for number, (value, time) in enumerate(zip(values, read, strict=True)):
        try:
            plain.append(value if time is None else _rfc3339(time, order))
        except ValueError as error:
            raise FeedError(f"{where(number)}: the time {str(value)[:60]!r}: {error}") from error
    stamps = _stamps(plain)
    for number, stamp in enumerate(stamps):
        if stamp is None or not EARLIEST_US <= stamp <= LATEST_US:
            raise FeedError(f"{where(number)}: {unread(values[number])}")
    return stamps


def _stamps(plain: list[Any]) -> list[Any]:
    columns = {
        "integer": [cell if type(cell) is int and abs(cell) < 2**63 else None for cell in plain],
        "decimal": [cell if type(cell) is float else None for cell in plain],
        "text": [cell.strip() if isinstance(cell, str) else None for cell in plain],
    }
    frame = pl.DataFrame(columns, schema={"integer": pl.Int64, "decimal": pl.Float64, "text": pl.String})
    return frame.select(time_us(pl.col("integer"), pl.col("decimal"), pl.col("text"))).to_series().to_list()


def _read(value: str | int) -> _Read | None:
    """None where it is no written date: a number of another length, or anything else."""
    match = _WHOLE.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        return None
    if match["packed"]:
        packed = match["packed"]
        year, first, second, left = int(packed[:4]), int(packed[4:6]), int(packed[6:]), None
    elif match["y"]:
        year, first, second, left = int(match["y"]), int(match["m"]), int(match["d"]), None
    elif match["a"]:
        year, first, second, left = int(match["y2"]), int(match["a"]), int(match["b"]), match["sep"]
    else:
        name = (match["mon3"] or match["mon4"])[:3].lower()
        if name not in _MONTHS:
            return None
        year, left = int(match["y3"] or match["y4"]), None
        first, second = _MONTHS.index(name) + 1, int(match["d3"] or match["d4"])
    offset = None
    if match["zone"]:
        minutes = int(match["zh"] or 0) * 60 + int(match["zm"] or 0)
        offset = None if "/" in match["zone"] else -minutes if match["sign"] == "-" else minutes
    return _Read(
        year=year,
        first=first,
        second=second,
        open=left,
        clock=_clock(match),
        zone=match["zone"],
        offset_min=offset,
    )


def _clock(match: re.Match[str]) -> tuple[int, int, int, int] | None:
    if match["digits"]:
        text = match["digits"].ljust(9, "0")
        return int(text[:2]), int(text[2:4]), int(text[4:6]), int(text[6:]) * 1_000
    if not match["H"]:
        return None
    hour = int(match["H"])
    if match["half"]:
        hour = (hour % 12 if 1 <= hour <= 12 else 99) + (12 if match["half"] in ("PM", "pm", "Pm", "pM") else 0)
    fraction = (match["f"] or "")[:6].ljust(6, "0")
    return hour, int(match["M"]), int(match["S"] or 0), int(fraction)


def _order(read: Iterable[_Read | None]) -> DateOrder:
    """Which of day and month comes first: what the column's own numbers say. With dots it is the day by custom."""
    written = [time for time in read if time is not None and time.open is not None]
    day = next((date for date in written if date.first > 12), None)
    month = next((date for date in written if date.second > 12), None)
    if day is not None and month is not None:
        shown = ", ".join(f"{date.first}{date.open}{date.second}{date.open}{date.year}" for date in (day, month))
        raise FeedError(f"dates of both orders ({shown}): write them all as YYYY-MM-DD")
    unlike = next((date for date in written if date.first != date.second), None)
    if day is None and month is None and unlike is not None and unlike.open != ".":
        shown = f"{unlike.first:02}{unlike.open}{unlike.second:02}{unlike.open}{unlike.year}"
        raise FeedError(
            f"{shown} may be a day and a month or a month and a day, and no date of the file tells which: "
            "say it with --dates day-first or --dates month-first, or write YYYY-MM-DD"
        )
    return "month-first" if month is not None else "day-first"


def _rfc3339(read: _Read, order: DateOrder) -> str:
    """As a record's time is written. Raises ValueError where the calendar, the clock or the zone has none such."""
    month, day = read.first, read.second
    if read.open is not None and order == "day-first":
        month, day = day, month
    at = datetime(read.year, month, day, *(read.clock or ()))
    minutes = read.offset_min or 0
    if read.zone and "/" in read.zone:
        zone = _zone(read.zone)
        offset, other = (at.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1))
        if offset != other:
            raise ValueError(f"the clock of {read.zone} is set there: it is no instant, or two; write the offset")
        minutes = round(offset.total_seconds() / 60)
    if abs(minutes) >= 1_440:
        raise ValueError("its offset is a day or more")
    return f"{at.isoformat()}{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


@lru_cache(16)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # not found is a KeyError
        raise ValueError(f"no time zone {name} is known here: write the offset") from error
