"""Bars from files, and that what is read can be consumed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from consumers.files.reader import read_bars, sample_bars
from consumers.files.times import FeedError
from consumers.kafka.publish import refusals
from consumers.wire.reasons import RawRecord
from consumers.wire.records import parse_records


def write(folder: Path, text: str, name: str = "bars.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["bars.csv", "bars.csv.gz"])
def test_csv_with_a_ticker_column_in_event_order(tmp_path: Path, name: str) -> None:
    text = (
        "Ticker,Date,Open,High,Low,Close,Volume,Adj Close\n"
        "B,2020-01-02,1,2,1,2,10,9\nB,2020-01-03,2,2,2,2,,9\nA,2020-01-02,5,6,5,6,7,9\n"
    )
    bars = read_bars(write(tmp_path, text, name))
    assert [(symbol, bar["ts"]) for symbol, bar in bars] == [
        ("B", "2020-01-02T00:00:00Z"),
        ("A", "2020-01-02T00:00:00Z"),
        ("B", "2020-01-03T00:00:00Z"),
    ]
    first = {"symbol": "B", "ts": "2020-01-02T00:00:00Z", "open": 1.0, "high": 2.0, "low": 1.0, "close": 2.0}
    assert bars[0][1] == {**first, "volume": 10.0}
    assert bars[2][1]["volume"] is None


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2001-08-06 00:00:00-04:00", "2001-08-06T04:00:00Z"),
        ("2001-08-06 10:30", "2001-08-06T10:30:00Z"),
        ("2001-08-06T10:30:15.25", "2001-08-06T10:30:15.250000Z"),
        ("20010806", "2001-08-06T00:00:00Z"),
        ("997056000", "2001-08-06T00:00:00Z"),
        ("997056000000", "2001-08-06T00:00:00Z"),
    ],
)
def test_times_of_files(tmp_path: Path, time: str, expected: str) -> None:
    (only,) = read_bars(write(tmp_path, f"time,open,high,low,close\n{time},1,1,1,1\n"), symbol="X")
    assert only[1]["ts"] == expected


def test_empty_rows_are_left_out_and_odd_values_passed_on(tmp_path: Path) -> None:
    text = "ts,o,h,l,c,v\n1600000001,,,,,\n1600000002,1,1,1,abc,5\n1600000003,1,1,1,nan,\n"
    bars = read_bars(write(tmp_path, text), "X")
    assert [bar["close"] for _, bar in bars] == ["abc", "nan"]


@pytest.mark.parametrize(
    "text",
    [
        '{"t":1600000001,"o":1,"h":1,"l":1,"c":1,"s":"X"}\n{"t":1600000002,"o":1,"h":1,"l":1,"c":1,"s":"X"}\n',
        '[{"t":1600000002,"o":1,"h":1,"l":1,"c":1},{"t":1600000001,"o":1,"h":1,"l":1,"c":1}]',
        '{"ticker":"X","results":[{"t":1600000001,"o":1,"h":1,"l":1,"c":1},{"t":1600000002,"o":1,"h":1,"l":1,"c":1}]}',
        '{"bars":{"X":[{"t":1600000001,"o":1,"h":1,"l":1,"c":1},{"t":1600000002,"o":1,"h":1,"l":1,"c":1}]}}',
        '{"data":{"ohlc":[{"t":"1600000001","o":"1","h":"1","l":"1","c":"1"},{"t":1600000002,"o":1,"h":1,"l":1,"c":1}],"pair":"X"}}',
    ],
)
def test_json_shapes(tmp_path: Path, text: str) -> None:
    bars = read_bars(write(tmp_path, text, "bars.json"), symbol="X")
    assert [(symbol, bar["ts"]) for symbol, bar in bars] == [
        ("X", "2020-09-13T12:26:41Z"),
        ("X", "2020-09-13T12:26:42Z"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2,3\n4,5,6\n", "no column for close"),
        ("ts,open,high,low,close\n", "no bars found"),
        ("ts,open,high,low,close\n1600000001,1,1,1,1\n", "--symbol"),
        ("ts,open,high,low,close,symbol\nsoon,1,1,1,1,X\n", "'soon'"),
        ("[[1,2,3]]", "no bars found"),
        ('{"a":1}\n{', "line 2"),
        ("", "neither JSON nor CSV"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FeedError, match=said):
        read_bars(write(tmp_path, text))


def test_a_cut_gzip_file_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, "ts,o\n1,2\n", "bars.csv.gz")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FeedError, match="gzip"):
        read_bars(path)


def test_the_sample_is_five_equities_that_all_parse() -> None:
    pytest.importorskip("bokeh_sampledata", exc_type=ImportError)
    bars = sample_bars()
    assert {symbol for symbol, _ in bars} == {"AAPL", "FB", "GOOG", "IBM", "MSFT"}
    times = [bar["ts"] for _, bar in bars]
    assert times == sorted(times)
    raws = [
        RawRecord("bars", 0, i, 1_700_000_000_000, symbol.encode(), json.dumps(bar).encode())
        for i, (symbol, bar) in enumerate(bars)
    ]
    parsed = parse_records(raws)
    assert all(item.record is not None for item in parsed)
    assert len(parsed) == 12_154


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("daily_us_equities_2000-2013.csv.gz", 12_154),
        ("ssnlf_daily_illiquid.csv.gz", 6_017),
        ("bitstamp_ohlc_btcusd_1m_2019-12-31.json.gz", 1_000),
        ("rest_polygon_alpaca_bars.jsonl", 11),  # one bar is there twice
    ],
)
def test_real_files(name: str, count: int) -> None:
    path = Path(__file__).parents[4] / "shared" / "data" / name
    if not path.exists():
        pytest.skip(f"needs {path}")
    assert len(read_bars(path, symbol="X")) == count


def test_what_the_consumer_would_not_take_is_counted_before(tmp_path: Path) -> None:
    prices = ("1,2,1,1", "1,1,2,1", ",,,", "x,2,1,1", "1,1,2,1")
    rows = (f"2020-01-0{day},{four}" for day, four in enumerate(prices, 2))
    told: list[str] = []
    path = write(tmp_path, "\n".join(("date,open,high,low,close", *rows)))
    bars = read_bars(path, "X", told.append)
    assert (len(bars), told) == (4, ["1 rows without any price are left out"])
    assert refusals(bars, "market.bars") == {"high_below_low": 2, "not_a_number": 1}
