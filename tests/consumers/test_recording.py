"""Recorded bars as series: files, the rules of a live record, equal times."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from consumers.files.times import FeedError
from consumers.recording import CHUNK, Recording, read_file, read_sample
from consumers.wire.reasons import RawRecord


def bar(minute: int, close: float, **changes: object) -> dict[str, object]:
    values = {"open": close, "high": close + 1, "low": close - 1, "close": close, "volume": 5}
    return {"ts": 1_700_000_000 + 60 * minute} | values | changes


def raw(offset: int, *bars: dict[str, object], key: str = "AAPL") -> RawRecord:
    return RawRecord("market.bars", 0, offset, -1, key.encode(), msgspec.json.encode(bars))


def test_a_file_gives_one_series_a_symbol_oldest_first(tmp_path: Path) -> None:
    path = tmp_path / "bars.jsonl"
    rows = [bar(2, 12.0, symbol="B"), bar(1, 11.0, symbol="A"), bar(0, 10.0, symbol="B")]
    path.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    found = read_file(path).series()
    assert list(found) == ["A", "B"]
    assert found["B"].close.tolist() == [10.0, 12.0]
    assert found["B"].time_us.tolist() == [1_700_000_000_000_000, 1_700_000_120_000_000]


def test_the_last_bar_of_a_time_counts_wherever_it_comes() -> None:
    recording = Recording()
    recording.add([raw(0, bar(0, 10.0), bar(1, 11.0)), raw(1, bar(2, 12.0)), raw(2, bar(1, 11.5))])
    recording.add([raw(3, bar(2, 12.5))])
    assert recording.series()["AAPL"].close.tolist() == [10.0, 11.5, 12.5]
    assert recording.refused == {}


def test_what_a_live_record_would_be_refused_for_is_counted_by_reason() -> None:
    recording = Recording()
    recording.add([raw(0, bar(0, 10.0), bar(1, 11.0, high=1.0)), raw(1, bar(2, 12.0), key=""), raw(2)])
    assert recording.series()["AAPL"].close.tolist() == [10.0]
    assert recording.refused == {"high_below_low": 1, "key_missing": 1, "empty_list": 1}


def test_long_files_are_parsed_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    lines = [f"{1_700_000_000 + 60 * minute},1,2,0.5,{1 + minute % 7 / 10},3" for minute in range(CHUNK + 10)]
    path.write_text("\n".join(["time,open,high,low,close,volume", *lines]))
    (found,) = read_file(path, "X").series().values()
    assert len(found) == CHUNK + 10
    assert found.close[-1] == 1 + (CHUNK + 9) % 7 / 10


def test_files_without_bars_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FeedError, match=r"empty\.csv"):
        read_file(tmp_path / "empty.csv")


def test_the_packaged_sample_has_five_equities() -> None:
    pytest.importorskip("bokeh_sampledata", reason="the sample data is an optional extra")
    found = read_sample().series()
    assert set(found) == {"AAPL", "FB", "GOOG", "IBM", "MSFT"}
    assert len(found["AAPL"]) > 3_000
