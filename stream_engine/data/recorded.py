"""Recorded instruments that the model is judged on, and never trained on."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from stream_engine.messages import Bar
from stream_engine.model.frame import BarArrays

_QUOTE_DAY = datetime(2014, 5, 1, tzinfo=UTC)
_QUOTE_BAR_US = 60_000_000


def recorded_series(directory: Path | None) -> Iterator[tuple[str, str, BarArrays]]:
    """(name, symbol, bars) of each recorded instrument in `directory`; daily equities also from bokeh_sampledata.

    Files that are absent are left out.
    """
    daily = _sample_package()
    if directory is not None:
        for name, symbol, file, read in _FILES:
            if (directory / file).exists():
                yield name, symbol, read(gzip.decompress((directory / file).read_bytes()).decode())
        daily = daily or directory / "daily_us_equities_2000-2013.csv.gz"
    if daily is not None and daily.exists():
        table = gzip.decompress(daily.read_bytes()).decode()
        for symbol in ("AAPL", "GOOG", "IBM", "MSFT"):
            yield f"{symbol} 1d", symbol, _daily(table, symbol)


def bars_of(series: BarArrays) -> list[Bar]:
    """Rows of a series."""
    columns = (series.time_us, series.open, series.high, series.low, series.close, series.volume)
    return [Bar(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _sample_package() -> Path | None:
    spec = find_spec("bokeh_sampledata")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "_data" / "stocks.csv.gz"


def _columns(rows: list[tuple[int, list[float]]]) -> BarArrays:
    """Rows of time in microseconds and [open, high, low, close, volume]."""
    values = np.array([row[1] for row in rows], dtype=np.float64)
    return BarArrays(np.array([row[0] for row in rows], dtype=np.int64), *values.T)


def _binance(text: str) -> BarArrays:
    bars = [json.loads(line) for line in text.splitlines()]
    return _columns([(bar[0] * 1000, [float(value) for value in bar[1:6]]) for bar in bars])


def _bitstamp(text: str) -> BarArrays:
    names = ("open", "high", "low", "close", "volume")
    bars = json.loads(text)["data"]["ohlc"]
    return _columns([(int(bar["timestamp"]) * 1_000_000, [float(bar[name]) for name in names]) for bar in bars])


def _ninjatrader(text: str) -> BarArrays:
    rows = []
    for line in text.splitlines():
        stamp, *values = line.split(";")
        at = datetime.strptime(stamp, "%Y%m%d %H%M%S").replace(tzinfo=UTC)
        rows.append((int(at.timestamp()) * 1_000_000, [float(value) for value in values]))
    return _columns(rows)


def _quotes(text: str) -> BarArrays:
    """Mid prices of quotes as one-minute bars without volume."""
    table = np.array([[float(value) for value in line.split(",")] for line in text.splitlines()])
    minute, mid = (table[:, 0] // 60_000).astype(np.int64), np.round((table[:, 1] + table[:, 2]) / 2, 6)
    starts = np.flatnonzero(np.diff(minute, prepend=-1))
    ends = np.append(starts[1:], len(mid)) - 1
    base = int(_QUOTE_DAY.timestamp()) * 1_000_000
    return BarArrays(
        base + minute[starts] * _QUOTE_BAR_US,
        mid[starts],
        np.maximum.reduceat(mid, starts),
        np.minimum.reduceat(mid, starts),
        mid[ends],
        np.full(len(starts), np.nan),
    )


def _daily(text: str, symbol: str) -> BarArrays:
    rows = []
    for row in csv.DictReader(io.StringIO(text)):
        if row["Ticker"] == symbol:
            at = datetime.fromisoformat(row["Date"]).replace(tzinfo=UTC)
            prices = [float(row[name]) for name in ("Open", "High", "Low", "Close", "Volume")]
            rows.append((int(at.timestamp()) * 1_000_000, prices))
    return _columns(rows)


_FILES: tuple[tuple[str, str, str, Callable[[str], BarArrays]], ...] = (
    ("BTC 1h", "BTCUSDT", "binance_klines_btcusdt_1h_2020-05.jsonl.gz", _binance),
    ("BTC 1m", "BTC/USD", "bitstamp_ohlc_btcusd_1m_2019-12-31.json.gz", _bitstamp),
    ("SPY 1m", "SPY", "spy_1m_2011q1_ninjatrader.csv.gz", _ninjatrader),
    ("EUR/USD 1m", "EUR/USD", "oanda_ticks_eurusd_2014-05-01.csv.gz", _quotes),
)
