"""Bars from a file, in event-time order, ready to be published: what ``stream-engine produce`` reads.

A file may be CSV with a header, JSON (a list of bars, wherever it lies), or JSON lines; each also gzipped. Values
that are no numbers are passed on as they are: the consumer's dead-letter topic shows what is wrong with them.
"""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from consumers.files.columns import PRICES, check_zone, columns_of, field_of, number_reader, volume_of
from consumers.files.times import DateOrder, FeedError, joined, kind_of, read_times
from consumers.wire.columns import DAY_US
from stream_engine.messages.bounds import UNREADABLE
from stream_engine.util.timestamps import rfc3339

FeedBar = tuple[str, dict[str, Any]]
"""The symbol, and the bar as it is published."""
Tell = Callable[[str], None]

_Row = Mapping[str, Any]
_HEADER_WITHIN = 10
"""Lines among which a header is looked for: some vendors write a title above it."""


def read_bars(
    path: Path, symbol: str | None = None, tell: Tell = lambda _: None, dates: DateOrder | None = None
) -> list[FeedBar]:
    """All bars of a file in event-time order across symbols, one of each time. ``symbol`` is used for bars that
    name none, ``dates`` for dates that may be read in two ways.

    ``tell`` is called with a sentence for rows that are left out. Raises FeedError, or OSError where the file
    cannot be read."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise FeedError(f"{path.name}: not a whole gzip file: {error}") from error
    text = _text(data, path.name)
    found = list(_json_rows(text, path.name) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text, path.name))
    if not found:
        raise FeedError(f"{path.name}: no bars found: each needs open, high, low, close and a time")
    names = list(dict.fromkeys(name for row, _ in found for name in row))
    columns = columns_of(names)
    taken = [(row, own) for row, own in found if any(_value(row, columns[name]) is not None for name in PRICES)]
    if not taken:
        raise FeedError(f"{path.name}: no bars found: each needs open, high, low, close and a time")
    if len(found) > len(taken):
        tell(f"{len(found) - len(taken)} rows without any price are left out")
    symbols = [str(_value(row, columns.get("symbol", ())) or own or symbol or "").strip() for row, own in taken]
    if not all(symbols):
        raise FeedError(f"{path.name}: no column or field names the symbol: give one with --symbol")
    rows = [row for row, _ in taken]
    stamps = _stamps(rows, columns["time"], path.name, dates)
    return _in_order(symbols, stamps, _numbers(rows, columns, symbols, path.name), path.name, tell)


def sample_bars() -> list[FeedBar]:
    """Daily bars of AAPL, FB, GOOG, IBM and MSFT, 2000 to 2013, as packaged (public domain, prices unadjusted).

    Raises FeedError where the optional package is absent."""
    spec = importlib.util.find_spec("bokeh_sampledata")
    if spec is None or not spec.submodule_search_locations:
        raise FeedError("the sample data is an optional extra: pip install 'stream-engine[demo]'")
    return read_bars(Path(spec.submodule_search_locations[0]) / "_data" / "stocks.csv.gz")


def _text(data: bytes, name: str) -> str:
    """As programs on Windows write text, too: with a mark in front, in UTF-16, in its old western code page."""
    coding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    for tried in (coding, "cp1252"):
        try:
            return data.decode(tried).replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError:
            continue
    raise FeedError(f"{name}: neither JSON nor CSV: it is no text in UTF-8")


def _csv_rows(text: str, name: str) -> Iterator[tuple[_Row, str | None]]:
    lines = text.split("\n")
    first = [(number, line) for number, line in enumerate(lines) if line.strip()][:_HEADER_WITHIN]
    if not first:
        raise FeedError(f"{name}: neither JSON nor CSV: it is empty")
    number, header = next(((number, line) for number, line in first if _is_header(_cells(line))), first[0])
    cells = _cells(header)
    if missing := sorted({*PRICES, "time"} - columns_of(cells).keys()):
        raise FeedError(
            f"{name}: no column for {', '.join(missing)}; its first line reads {', '.join(cells)[:200]}: "
            "name the columns there, such as date,time,open,high,low,close,volume"
        )
    try:
        body = "\n".join(lines[number:]).encode()
        frame = pl.read_csv(body, infer_schema=False, separator=_separator(header))
    except pl.exceptions.PolarsError as error:
        raise FeedError(f"{name}: neither JSON nor CSV: {str(error).splitlines()[0]}") from error
    yield from ((row, None) for row in frame.iter_rows(named=True))


def _separator(line: str) -> str:
    return max(",;\t|", key=line.count)


def _cells(line: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(_separator(line))]


def _is_header(cells: Sequence[str]) -> bool:
    return columns_of(cells).keys() >= {*PRICES, "time"}


def _json_rows(text: str, name: str) -> Iterator[tuple[_Row, str | None]]:
    try:
        documents = [msgspec.json.decode(text)]
    except UNREADABLE:
        documents = []
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    documents.append(msgspec.json.decode(line))
                except UNREADABLE as error:
                    raise FeedError(f"{name}: line {number} is not JSON: {error}") from error
    for document in documents:
        yield from _bars_within(document, None)


def _bars_within(node: Any, symbol: str | None) -> Iterator[tuple[_Row, str | None]]:
    """Every object with named prices and a time, however deep, and the symbol of those that name none: a name
    beside the list (``ticker``), or the key under ``bars`` that leads to it."""
    if isinstance(node, list):
        for item in node:
            yield from _bars_within(item, symbol)
    elif isinstance(node, dict):
        if _is_header(list(node)):
            yield node, symbol
            return
        own = (value for name, value in node.items() if field_of(name) == "symbol" and isinstance(value, str))
        symbol = next(own, symbol)
        for name, child in node.items():
            if name == "bars" and isinstance(child, dict) and not _is_header(list(child)):
                for key, bars in child.items():
                    yield from _bars_within(bars, key)
            else:
                yield from _bars_within(child, symbol)


def _value(row: _Row, columns: Sequence[str]) -> Any:
    """Of the first of the columns that the row has; None where it is empty."""
    value = next((row[name] for name in columns if name in row), None)
    return None if isinstance(value, str) and not value.strip() else value


def _stamps(rows: list[_Row], columns: list[str], name: str, dates: DateOrder | None) -> list[int]:
    """One column is the time, or a date and a clock are. Two whole times have to be the same."""

    def where(number: int) -> str:
        return f"{name}: bar {number + 1}"

    kinds: dict[str, list[str]] = {"whole": [], "date": [], "clock": []}
    for column in columns:
        if any(row.get(column) not in (None, "") for row in rows):
            kinds[kind_of(row.get(column) for row in rows)].append(column)
    if kinds["whole"]:
        stamps: list[int] = []
        for column in kinds["whole"]:
            values = [row.get(column) for row in rows]
            check_zone(column, values)
            read = read_times(values, dates, where)
            if stamps and read != stamps:
                both = f"{kinds['whole'][0]!r} and {column!r}"
                raise FeedError(f"{name}: {both} are different times: keep one of them")
            stamps = read
        for column in kinds["date"]:
            days = read_times([row.get(column) for row in rows], dates, where)
            if any(not -DAY_US <= stamp - day < 2 * DAY_US for stamp, day in zip(stamps, days, strict=True)):
                both = f"{kinds['whole'][0]!r} and {column!r}"
                raise FeedError(f"{name}: {both} are of different days: keep one of them")
        return stamps
    if len(kinds["date"]) != 1 or len(kinds["clock"]) > 1:
        shown = ", ".join(repr(column) for column in columns)
        raise FeedError(f"{name}: {shown}: one column has to hold the time, or one the date and one the clock")
    values = [row.get(kinds["date"][0]) for row in rows]
    if kinds["clock"]:
        clocks = [row.get(kinds["clock"][0]) for row in rows]
        check_zone(kinds["clock"][0], clocks)
        values = joined(values, clocks)
    return read_times(values, dates, where)


def _numbers(
    rows: list[_Row], columns: Mapping[str, list[str]], symbols: list[str], name: str
) -> list[dict[str, Any]]:
    volume = volume_of(columns.get("volume", []), rows, symbols[0])
    taken = [*(columns[price] for price in PRICES), [] if volume is None else [volume]]
    values = [[_value(row, column) for column in taken] for row in rows]
    read = number_reader((value for row in values for value in row if isinstance(value, str)), name)
    return [dict(zip((*PRICES, "volume"), map(read, row), strict=True)) for row in values]


def _in_order(
    symbols: list[str], stamps: list[int], numbers: list[dict[str, Any]], name: str, tell: Tell
) -> list[FeedBar]:
    """One bar of a symbol and time: the last of several, as a session would keep it."""
    rows = list(zip(symbols, stamps, numbers, strict=True))
    last = {(symbol, stamp): bar for symbol, stamp, bar in rows}
    exact = {(symbol, stamp, *map(str, bar.values())) for symbol, stamp, bar in rows}
    if len(last) * 2 < len(exact):
        raise FeedError(
            f"{name}: {len(exact)} bars have only {len(last)} different times: is their clock, or their symbol, "
            "in a column whose name is not known (date, time, symbol)?"
        )
    if len(last) < len(rows):
        tell(f"{len(rows) - len(last)} rows repeat the time of another row of their symbol: the last one is kept")
    ordered = sorted(last.items(), key=lambda entry: entry[0][1])
    return [(symbol, {"symbol": symbol, "ts": rfc3339(stamp), **bar}) for (symbol, stamp), bar in ordered]
