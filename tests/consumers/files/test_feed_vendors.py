"""Files as vendors and programs write them: each is read right, or refused with what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consumers.files.reader import read_bars
from consumers.files.times import DateOrder, FeedError

HEAD = "open,high,low,close,volume"


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder: Path, content: str | bytes, **more: Any) -> list[tuple[str, float | None, float | None]]:
    """Time, close and volume of each bar."""
    bars = read_bars(write(folder, content), "X", **more)
    return [(bar["ts"], bar["close"], bar["volume"]) for _, bar in bars]


MORNING = [("2025-03-13T09:30:00Z", 7.5, 20), ("2025-03-13T09:31:00Z", 8.5, 30)]


@pytest.mark.parametrize(
    "content",
    [
        # A date and a clock in two columns, as many write them.
        f"Date,Time,{HEAD}\n2025-03-13,09:30:00,7,9,6,7.5,20\n2025-03-13,09:31:00,8,9,6,8.5,30\n",
        f"Time,Date,{HEAD}\n09:30,13.03.2025,7,9,6,7.5,20\n09:31,13.03.2025,8,9,6,8.5,30\n",
        f"DATE,TIME,{HEAD}\n20250313,93000,7,9,6,7.5,20\n20250313,93100,8,9,6,8.5,30\n",
        f"DATE,TIME,{HEAD}\n20250313,930,7,9,6,7.5,20\n20250313,931,8,9,6,8.5,30\n",
        f"date,time,{HEAD}\n3/13/2025,9:30 AM,7,9,6,7.5,20\n3/13/2025,9:31:00 am,8,9,6,8.5,30\n",
        # MetaTrader 5, stooq, Metastock.
        "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>\n"
        "2025.03.13\t09:30:00\t7\t9\t6\t7.5\t20\t0\t3\n2025.03.13\t09:31:00\t8\t9\t6\t8.5\t30\t0\t3\n",
        "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>\n"
        "X,1,20250313,093000,7,9,6,7.5,20\nX,1,20250313,093100,8,9,6,8.5,30\n",
        # One column: pandas' index, PostgreSQL's offset, Interactive Brokers' two spaces and its zone's name.
        f",{HEAD}\n2025-03-13 05:30:00-04:00,7,9,6,7.5,20\n2025-03-13 05:31:00-04:00,8,9,6,8.5,30\n",
        f"time,{HEAD}\n2025-03-13 09:30:00+00,7,9,6,7.5,20\n2025-03-13 11:31:00+02,8,9,6,8.5,30\n",
        f"date,{HEAD}\n20250313  09:30:00,7,9,6,7.5,20\n20250313  09:31:00,8,9,6,8.5,30\n",
        f"date,{HEAD}\n20250313 05:30:00 US/Eastern,7,9,6,7.5,20\n20250313 05:31:00 US/Eastern,8,9,6,8.5,30\n",
        # Dukascopy.
        f"Gmt time,{HEAD}\n13.03.2025 09:30:00.000,7,9,6,7.5,20\n13.03.2025 09:31:00.000,8,9,6,8.5,30\n",
        f"Local time,{HEAD}\n13.03.2025 10:30:00.000 GMT+0100,7,9,6,7.5,20\n"
        "13.03.2025 10:31:00.000 GMT+0100,8,9,6,8.5,30\n",
        f"Time (UTC),{HEAD}\n2025.03.13 09:30:00,7,9,6,7.5,20\n2025.03.13 09:31:00,8,9,6,8.5,30\n",
        # Compact dates with their clock: 12, 14 and 17 digits, as text and as numbers.
        f"t,{HEAD}\n202503130930,7,9,6,7.5,20\n202503130931,8,9,6,8.5,30\n",
        f"t,{HEAD}\n20250313093000,7,9,6,7.5,20\n20250313093100,8,9,6,8.5,30\n",
        '[{"t":20250313093000000,"o":7,"h":9,"l":6,"c":7.5,"v":20},'
        '{"t":20250313093100000,"o":8,"h":9,"l":6,"c":8.5,"v":30}]',
        '[{"date":"2025-03-13","time":"09:30:00","o":7,"h":9,"l":6,"c":7.5,"v":20},'
        '{"date":"2025-03-13","time":"09:31:00","o":8,"h":9,"l":6,"c":8.5,"v":30}]',
        # CryptoDataDownload: a title, newest first, two times that agree, a volume in each currency.
        "https://www.example.org\nunix,date,symbol,open,high,low,close,Volume USD,Volume X\n"
        "1741858260000,2025-03-13 09:31:00,X/USD,8,9,6,8.5,255,30\n"
        "1741858200000,2025-03-13 09:30:00,X/USD,7,9,6,7.5,150,20\n",
        # Excel: its separator's line, a mark in front or UTF-16, decimal commas.
        f"\ufeff{HEAD.replace(',', ';')};Datum\n7;9;6;7,5;20;13.03.2025 09:30\n8;9;6;8,5;30;13.03.2025 09:31\n",
        "sep=;\nDatum;Eröffnung;Hoch;Tief;Schluss;Stücke\n"
        "13.03.2025 09:30;7,0;9,0;6,0;7,5;20\n13.03.2025 09:31;8,0;9,0;6,0;8,5;30\n",
        f"time\t{HEAD}\n2025-03-13 09:30\t7\t9\t6\t7.5\t20\n2025-03-13 09:31\t8\t9\t6\t8.5\t30\n"
        .replace(",", "\t").encode("utf-16"),
        "Datum;Eröffnung;Hoch;Tief;Schluss;Stücke\n"
        "2025-03-13 09:30;7;9;6;7,5;20\n2025-03-13 09:31;8;9;6;8,5;30\n".encode("cp1252"),
        # Nasdaq, Investing.com, Barchart.
        "Date,Close/Last,Volume,Open,High,Low\n03/13/2025 09:30,$7.50,20,$7,$9,$6\n"
        "03/13/2025 09:31,$8.5,30,$8,$9,$6\n",
        "Date,Price,Open,High,Low,Vol.,Change %\n"
        "Mar 13 2025 09:30,7.5,7,9,6,0.00002M,1%\n\"Mar 13, 2025 09:31\",8.5,8,9,6,0.03K,1%\n",
        "Time,Open,High,Low,Last,Change,Volume\n2025-03-13 09:31,8,9,6,8.5,1,30\n2025-03-13 09:30,7,9,6,7.5,1,20\n"
        "Downloaded from Barchart.com,,,,,,\n",
        f"Date,Adj Close,{HEAD}\n13-Mar-2025 09:30,1,7,9,6,7.5,20\n13-Mar-2025 09:31,1,8,9,6,8.5,30\n",
    ],
)  # fmt: skip
def test_one_morning_in_many_hands(tmp_path: Path, content: str | bytes) -> None:
    assert read(tmp_path, content) == MORNING


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"date,{HEAD}\n01/02/2025,7,9,6,7.5,1\n01/03/2025,7,9,6,7.5,1\n", "--dates day-first or --dates"),
        (f"date,{HEAD}\n13/02/2025,7,9,6,7.5,1\n01/13/2025,7,9,6,7.5,1\n", "both orders"),
        (f"date,{HEAD}\n01/02/25,7,9,6,7.5,1\n", "neither RFC 3339"),
        (f"Time (EET),{HEAD}\n2025.03.13 09:30:00,7,9,6,7.5,1\n", "'eet'"),
        (f"Local time,{HEAD}\n13.03.2025 10:30:00,7,9,6,7.5,1\n", "'local'"),
        (f"date,{HEAD}\n20250309 02:30:00 US/Eastern,7,9,6,7.5,1\n", "no instant, or two"),
        (f"date,{HEAD}\n20251102 01:30:00 US/Eastern,7,9,6,7.5,1\n", "no instant, or two"),
        (f"date,{HEAD}\n20250309 02:30:00 US/Nowhere,7,9,6,7.5,1\n", "no time zone US/Nowhere"),
        (f"date,{HEAD}\n2025-03-13 09:30:00 EST,7,9,6,7.5,1\n", "neither RFC 3339"),
        (f"date,{HEAD}\n2025-03-13 09:30Z,7,9,6,7.5,1\n2025-03-13 09:31,7,9,6,7.5,1\n", "some do not"),
        (f"timestamp,time,{HEAD}\n2025-03-13 09:30,2025-03-13 14:30,7,9,6,7.5,1\n", "different times"),
        (f"timestamp,date,{HEAD}\n2026-03-13 09:30,2025-03-13,7,9,6,7.5,1\n", "different days"),
        (f"time,{HEAD}\n09:30,7,9,6,7.5,1\n", "one the date and one the clock"),
        (f",{HEAD}\n0,7,9,6,7.5,1\n1,7,9,6,7.5,1\n", "one the date and one the clock"),
        (f"date,{HEAD}\n20251301,7,9,6,7.5,1\n", "month must be"),
        (f"date,{HEAD}\n13032025,7,9,6,7.5,1\n", "YYYYMMDD"),
        (f"date,{HEAD}\n2500-01-01,7,9,6,7.5,1\n", "1900 to 2200"),
        (f"date,{HEAD}\n2025-03-13 25:30,7,9,6,7.5,1\n", "hour must be"),
        ("date;open;high;low;close\n2025-03-13;1,234;1,236;1,230;1,235\n", "thousands or a decimal comma"),
        ('date,open,high,low,close\n2025-03-13,"1,5","1,234.5",1,1\n', "point in '1,5' and separates in"),
        (f"date,x,{HEAD}\n" + "".join(f"2025-03-13,{m},7,9,6,{m},1\n" for m in range(40)), "1 different times"),
        ("2025.03.13,09:30,7,9,6,7.5,1\n", "name the columns there"),
    ],
)  # fmt: skip
def test_what_may_be_two_things_is_refused(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(FeedError, match=said):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("order", "day"), [("day-first", "2025-02-01T00:00:00Z"), ("month-first", "2025-01-02T00:00:00Z")]
)
def test_the_user_may_say_which_comes_first(tmp_path: Path, order: DateOrder, day: str) -> None:
    assert read(tmp_path, f"date,{HEAD}\n01/02/2025,7,9,6,7.5,1\n", dates=order) == [(day, 7.5, 1)]


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ('"1,234.5"', 1234.5),
        ('"1,234,567"', 1_234_567),
        ('"12,345,678.25"', 12_345_678.25),
        ('"1.234,5"', 1234.5),
        ('"1.234.567,5"', 1_234_567.5),
        ('"0,5"', 0.5),
        ("1'234.5", 1234.5),
        ('"1\u202f234,5"', 1234.5),
        ("1e-12", 1e-12),
        ("5e-324", 5e-324),
        ("1e15", 1e15),
        ("-37.63", -37.63),
        ("2.5M", 2_500_000),
    ],
)
def test_numbers(tmp_path: Path, written: str, number: float) -> None:
    row = ",".join(["2025-03-13", *[written] * 4])
    assert read(tmp_path, f"date,open,high,low,close\n{row}\n") == [("2025-03-13T00:00:00Z", number, None)]


def test_what_is_no_number_is_passed_on_and_decides_nothing(tmp_path: Path) -> None:
    text = 'date,open,high,low,close\n2025-03-13,"1,100.5","12,345,000","1,99.5","1,100.5"\n'
    ((_, bar),) = read_bars(write(tmp_path, text), "X")
    assert (bar["open"], bar["high"], bar["low"]) == (1100.5, 12_345_000, "1,99.5")


def test_rows_of_one_time_are_told_and_the_last_is_kept(tmp_path: Path) -> None:
    rows = ["2025-03-13,7,9,6,7,1", "2025-03-14,7,9,6,7.5,1", "2025-03-14,7,9,6,8,1", "2025-03-14,7,9,6,8,1"]
    told: list[str] = []
    bars = read(tmp_path, "\n".join((f"date,{HEAD}", *rows)), tell=told.append)
    assert [(day[:10], close) for day, close, _ in bars] == [("2025-03-13", 7), ("2025-03-14", 8)]
    assert told == ["2 rows repeat the time of another row of their symbol: the last one is kept"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines(tmp_path: Path, end: str) -> None:
    rows = (f"date,{HEAD}", "2025-03-13,7,9,6,7.5,1", "2025-03-14,7,9,6,8,1", "")
    assert [close for _, close, _ in read(tmp_path, end.join(rows).encode())] == [7.5, 8]


def test_what_only_some_programs_take_for_an_end_of_line(tmp_path: Path) -> None:
    bar = '{"t":"2025-03-1%d","o":7,"h":9,"l":6,"c":7.5,"note":"a\u2028b\u0085c"}'
    assert len(read(tmp_path, "\n".join((bar % 3, bar % 4)))) == 2


def test_symbols_that_are_names_of_fields(tmp_path: Path) -> None:
    bar = '[{"t":"2025-03-13","o":7,"h":9,"l":6,"c":7.5,"v":1}]'
    text = "".join(('{"bars":{"S":', bar, ',"V":', bar, ',"open":', bar, "}}"))
    assert sorted(symbol for symbol, _ in read_bars(write(tmp_path, text))) == ["S", "V", "open"]
