"""Bars from a file, in event-time order, ready to be published: what ``stream-engine produce`` reads.

A file may be CSV with a header, JSON (a list of bars, wherever it lies), or JSON lines; each also gzipped. Times
without an offset are taken as UTC, dates as their midnight. Values that are no numbers are passed on as they are:
the consumer's dead-letter topic shows what is wrong with them.
"""

from __future__ import annotations

import gzip
import importlib.util
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from consumers.records import ALIASES
from consumers.times import time_us
from stream_engine.messages.bounds import UNREADABLE

FeedBar = tuple[str, dict[str, Any]]
"""The symbol, and the bar as it is published."""

_PRICES = ("open", "high", "low", "close")
_REQUIRED = {*_PRICES, "time"}
_FILE_ALIASES = {
    "date": "time",
    "datetime": "time",
    "date time": "time",
    "open time": "time",
    "open_time": "time",
    "ticker": "symbol",
    "pair": "symbol",
}
_DATE = r"^(\d{4}-\d{2}-\d{2})$"
_COMPACT_DATE = r"^((?:19|20)\d{2})([01]\d)([0-3]\d)$"
_NO_SECONDS = r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2})$"
_NO_OFFSET = r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.]\d+)?)$"


class FeedError(ValueError):
    """The file holds no bars that can be read; the message says what was looked for."""


def read_bars(
    path: Path, symbol: str | None = None, left_out: Callable[[int], None] = lambda _: None
) -> list[FeedBar]:
    """All bars of a file in event-time order across symbols. ``symbol`` is used for bars that name none.

    Rows without any price are left out; ``left_out`` is called with their number. Raises FeedError, or OSError
    where the file cannot be read."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise FeedError(f"{path.name}: not a whole gzip file: {error}") from error
    is_json = data.lstrip()[:1] in (b"{", b"[")
    found = list(_json_rows(data, path.name) if is_json else _csv_rows(data, path.name))
    rows = [row for row in found if any(row.get(name) not in (None, "") for name in _PRICES)]
    if not rows:
        raise FeedError(f"{path.name}: no bars found: each needs open, high, low, close and a time")
    left_out(len(found) - len(rows))
    for row in rows:
        row["symbol"] = str(row.get("symbol") or symbol or "").strip()
        if not row["symbol"]:
            raise FeedError(f"{path.name}: no column or field names the symbol: give one with --symbol")
    return _in_order(rows, path.name)


def sample_bars() -> list[FeedBar]:
    """Daily bars of AAPL, FB, GOOG, IBM and MSFT, 2000 to 2013, as packaged (public domain, prices unadjusted).

    Raises FeedError where the optional package is absent."""
    spec = importlib.util.find_spec("bokeh_sampledata")
    if spec is None or not spec.submodule_search_locations:
        raise FeedError("the sample data is an optional extra: pip install 'stream-engine[demo]'")
    return read_bars(Path(spec.submodule_search_locations[0]) / "_data" / "stocks.csv.gz")


def _csv_rows(data: bytes, name: str) -> Iterator[dict[str, Any]]:
    try:
        frame = pl.read_csv(data, infer_schema=False)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise FeedError(f"{name}: neither JSON nor CSV: {str(error).splitlines()[0]}") from error
    named: dict[str, str] = {}
    for column in frame.columns:
        field = _field(column)
        if field is not None and field not in named.values():
            named[column] = field
    missing = _REQUIRED - set(named.values())
    if missing:
        raise FeedError(
            f"{name}: no column for {', '.join(sorted(missing))}; "
            f"its first line reads {', '.join(frame.columns)[:200]}"
        )
    yield from frame.select(pl.col(column).alias(field) for column, field in named.items()).iter_rows(named=True)


def _json_rows(data: bytes, name: str) -> Iterator[dict[str, Any]]:
    try:
        documents = [msgspec.json.decode(data)]
    except UNREADABLE:
        documents = []
        for number, line in enumerate(data.splitlines(), start=1):
            if line.strip():
                try:
                    documents.append(msgspec.json.decode(line))
                except UNREADABLE as error:
                    raise FeedError(f"{name}: line {number} is not JSON: {error}") from error
    for document in documents:
        yield from _bars_within(document, None)


def _bars_within(node: Any, symbol: str | None) -> Iterator[dict[str, Any]]:
    """Every object with named prices and a time, however deep. A name beside the list (``ticker``), or the key
    under ``bars`` that leads to it, is the symbol of bars that have none."""
    if isinstance(node, list):
        for item in node:
            yield from _bars_within(item, symbol)
    elif isinstance(node, dict):
        fields = {field: value for name, value in node.items() if (field := _field(name)) is not None}
        own = fields.get("symbol")
        symbol = own if isinstance(own, str) else symbol
        if fields.keys() >= _REQUIRED:
            yield {**fields, "symbol": symbol}
            return
        for name, child in node.items():
            if name == "bars" and isinstance(child, dict) and _field(next(iter(child), "")) is None:
                for key, bars in child.items():
                    yield from _bars_within(bars, key)
            else:
                yield from _bars_within(child, symbol)


def _field(name: str) -> str | None:
    """One-letter names differ by case (Binance: t opens, T closes); words do not."""
    if name in ALIASES:
        return ALIASES[name]
    word = name.strip().lower()
    return None if len(word) == 1 else ALIASES.get(word) or _FILE_ALIASES.get(word)


def _in_order(rows: list[dict[str, Any]], name: str) -> list[FeedBar]:
    times = [row["time"] for row in rows]
    frame = pl.DataFrame(
        {
            "integer": [t if type(t) is int else None for t in times],
            "decimal": [t if type(t) is float else None for t in times],
            "text": [t if isinstance(t, str) else None for t in times],
        },
        schema={"integer": pl.Int64, "decimal": pl.Float64, "text": pl.String},
        strict=False,
    )
    text = (
        pl.col("text")
        .str.strip_chars()
        .str.replace(_COMPACT_DATE, "${1}-${2}-${3}")
        .str.replace(_DATE, "${1}T00:00")
        .str.replace(_NO_SECONDS, "${1}:00")
        .str.replace(_NO_OFFSET, "${1}Z")
    )
    stamps = frame.select(time_us(pl.col("integer"), pl.col("decimal"), text)).to_series().to_list()
    for number, (stamp, shown) in enumerate(zip(stamps, times, strict=True), start=1):
        if stamp is None:
            raise FeedError(f"{name}: bar {number}: {shown!r} is neither a date, an RFC 3339 time nor an epoch")
    order = sorted(range(len(rows)), key=stamps.__getitem__)
    return [(rows[i]["symbol"], _published(rows[i], stamps[i])) for i in order]


def _published(row: dict[str, Any], stamp: int) -> dict[str, Any]:
    time = datetime.fromtimestamp(stamp // 1_000_000, UTC).replace(microsecond=stamp % 1_000_000)
    bar = {"symbol": row["symbol"], "ts": time.isoformat().replace("+00:00", "Z")}
    return bar | {name: _number(row.get(name)) for name in (*_PRICES, "volume")}


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        number = float(value)
    except ValueError:
        return value
    return number if math.isfinite(number) else value  # JSON has no NaN: the text shows what the file holds
