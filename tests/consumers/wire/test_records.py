"""Raw records to bars and dead letters: every blemish that a producer can send."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.wire.reasons import RawRecord, Reason
from consumers.wire.records import ALIASES, ParsedRecord, parse_records
from stream_engine.messages import Bar

RECORD_MS = 1_700_000_000_000
GOOD = {"ts": 1_600_000_000, "open": 10, "high": 12, "low": 9, "close": 11, "volume": 5}
GOOD_BAR = Bar(1_600_000_000_000_000, 10.0, 12.0, 9.0, 11.0, 5.0)


def raw(value: Any, key: bytes | None = b"AAPL", offset: int = 0) -> RawRecord:
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return RawRecord("bars", 0, offset, RECORD_MS, key, data)


def parse(value: Any, key: bytes | None = b"AAPL") -> ParsedRecord:
    return parse_records([raw(value, key)])[0]


def bars(value: Any) -> tuple[Bar, ...]:
    parsed = parse(value)
    assert not parsed.dead, parsed.dead
    assert parsed.record is not None
    return parsed.record.bars


def reason(value: Any, key: bytes | None = b"AAPL") -> str:
    parsed = parse(value, key)
    assert parsed.record is None
    (letter,) = parsed.dead
    assert letter.detail
    assert letter.value == parsed.raw.value
    assert letter.bar is None
    return letter.reason


def test_one_bar() -> None:
    record = parse(GOOD).record
    assert record is not None
    assert (record.key, record.offset, record.timestamp_ms, record.bars) == ("AAPL", 0, RECORD_MS, (GOOD_BAR,))


@pytest.mark.parametrize("alias", [a for a, field in ALIASES.items() if field != "symbol"])
def test_each_field_name(alias: str) -> None:
    names = {"time": "ts", **{f: f for f in ("open", "high", "low", "close", "volume")}}
    bar = {alias if field == ALIASES[alias] else name: GOOD[name] for field, name in names.items()}
    assert bars(bar) == (GOOD_BAR,)


@pytest.mark.parametrize("alias", ["symbol", "sym", "s", "S"])
def test_each_symbol_name(alias: str) -> None:
    assert bars({**GOOD, alias: "AAPL"}) == (GOOD_BAR,)
    assert reason({**GOOD, alias: "MSFT"}) == Reason.SYMBOL_MISMATCH


@pytest.mark.parametrize(
    "time",
    [
        1_600_000_000,
        1_600_000_000_000,
        1_600_000_000_000_000,
        1_600_000_000_000_000_000,
        1_600_000_000.0,
        1.6e12,
        "1600000000",
        "1600000000000",
        "1600000000000000",
        "1600000000000000000",
        "1600000000.0",
        " 1600000000 ",
        "2020-09-13T12:26:40Z",
        "2020-09-13t12:26:40z",
        "2020-09-13 12:26:40Z",
        "2020-09-13T12:26:40.000Z",
        "2020-09-13T12:26:40.000000000Z",
        "2020-09-13T08:26:40-04:00",
        "2020-09-13T17:56:40+05:30",
        "2020-09-13T17:56:40+0530",
        "2020-09-13 12:26:40+00",
        "2020-09-13T08:26:40-04",
    ],
)
def test_each_way_to_write_one_time(time: Any) -> None:
    assert bars({**GOOD, "ts": time})[0].time_us == 1_600_000_000_000_000


@pytest.mark.parametrize(
    ("time", "expected_us"),
    [
        ("2020-09-13T12:26:40.1234567Z", 1_600_000_000_123_456),
        ("2020-09-13T12:26:40.5Z", 1_600_000_000_500_000),
        (1_600_000_000_123, 1_600_000_000_123_000),
        (1_600_000_000_123_456_789, 1_600_000_000_123_456),
        ("1600000000.25", 1_600_000_000_250_000),
        (-86_400, -86_400_000_000),
        ("1928-01-03T00:00:00Z", -1_325_289_600_000_000),
        ("20231104", 1_699_056_000_000_000),
        (20231104, 1_699_056_000_000_000),
        (20231104.0, 1_699_056_000_000_000),
        ("20231104.0", 1_699_056_000_000_000),
        ("19280103", -1_325_289_600_000_000),
        ("2023-11-04", 1_699_056_000_000_000),
        (40_000_000, 40_000_000_000_000),  # eight digits that are no date in any order
        (10_000_000, 10_000_000_000_000),
        (220_000_000_000, 220_000_000_000_000),
    ],
)
def test_fractions_and_early_times(time: Any, expected_us: int) -> None:
    assert bars({**GOOD, "ts": time})[0].time_us == expected_us


@pytest.mark.parametrize(
    "time",
    [
        "",
        "yesterday",
        "2020-09-13T12:26:40",
        "2020-09-13T12:26",
        "20231104093000",
        20231104093000,
        "202311040930",
        202311040930,
        "20231104093000000",
        20231104000000000,
        "20231104 093000",
        "20231304",
        20230229,
        "04112023",
        4_11_2023,
        31_12_2022,
        "12312022",
        190_080_000_000,
        0,
        "0",
        93000,
        "093000",
        93000.5,
        45_292.395,
        231_104,
        9_999_999,
        "1,600,000,000",
        "09:30:00",
        "2020-13-13T12:26:40Z",
        "2020-02-30T12:26:40Z",
        "2020-09-13T12:26:40+25:00",
        "1e400",
        10**30,
        -(2**63),
        1e300,
        -3_000_000_000,
        "2300-01-01T00:00:00Z",
    ],
)
def test_times_that_are_none(time: Any) -> None:
    assert reason({**GOOD, "ts": time}) == Reason.TIME_INVALID


def test_a_time_far_ahead_of_its_record() -> None:
    week = 7 * 86_400
    assert bars({**GOOD, "ts": RECORD_MS // 1000 + week})
    assert reason({**GOOD, "ts": RECORD_MS // 1000 + week + 1}) == Reason.TIME_IN_FUTURE


@pytest.mark.parametrize("stamp", [-1, -(2**63), 2**63 - 1, 1_700_000_000_000_000])
def test_without_an_honest_stamp_the_clock_counts(stamp: int) -> None:
    (late,) = parse_records([RawRecord("bars", 0, 0, stamp, b"AAPL", json.dumps({**GOOD, "ts": 7e9}).encode())])
    assert [letter.reason for letter in late.dead] == [Reason.TIME_IN_FUTURE]
    assert parse_records([RawRecord("bars", 0, 0, stamp, b"AAPL", json.dumps(GOOD).encode())])[0].record


def test_numbers_as_text() -> None:
    text = {**GOOD, "open": "10", "high": " 12.0", "low": "9e0", "close": "11", "volume": "5"}
    assert bars(text) == (GOOD_BAR,)


@pytest.mark.parametrize("change", [{"volume": None}, {"volume": ...}])
def test_volume_may_be_unknown(change: dict[str, Any]) -> None:
    bar = {k: v for k, v in {**GOOD, **change}.items() if v is not ...}
    assert math.isnan(bars(bar)[0].volume)


def test_zero_and_negative_prices_are_legal() -> None:
    crude = {"t": "2020-04-20T18:30:00Z", "o": 0, "h": 0.5, "l": -40.32, "c": -37.63, "v": 0}
    assert bars(crude)[0].close == -37.63


def test_flat_bars_and_unknown_fields_are_fine() -> None:
    assert bars({"t": 1e9, "o": 5, "h": 5, "l": 5, "c": 5, "n": [1, 2], "vw": None})[0].volume != 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"open": "abc"}, Reason.NOT_A_NUMBER),
        ({"open": "1,000"}, Reason.NOT_A_NUMBER),
        ({"open": ""}, Reason.NOT_A_NUMBER),
        ({"volume": "n/a"}, Reason.NOT_A_NUMBER),
        ({"open": "NaN"}, Reason.NOT_FINITE),
        ({"high": "Infinity"}, Reason.NOT_FINITE),
        ({"low": "-inf"}, Reason.NOT_FINITE),
        ({"high": "1e999"}, Reason.NOT_FINITE),
        ({"high": 10**400}, Reason.NOT_FINITE),
        ({"volume": "nan"}, Reason.NOT_FINITE),
        ({"high": 8}, Reason.HIGH_BELOW_LOW),
        ({"open": 8}, Reason.OUTSIDE_RANGE),
        ({"close": 12.5}, Reason.OUTSIDE_RANGE),
        ({"volume": -1}, Reason.NEGATIVE_VOLUME),
        ({"open": True}, Reason.WRONG_TYPE),
        ({"ts": False}, Reason.WRONG_TYPE),
        ({"open": [10]}, Reason.WRONG_TYPE),
        ({"close": {"v": 11}}, Reason.WRONG_TYPE),
        ({"symbol": 7}, Reason.WRONG_TYPE),
        ({"o": 10.5}, Reason.CONFLICT),
        ({"t": 1_600_000_001}, Reason.CONFLICT),
        ({"close": None}, Reason.MISSING_FIELD),
        ({"ts": None}, Reason.MISSING_FIELD),
    ],
)
def test_bad_bars(change: dict[str, Any], expected: Reason) -> None:
    assert reason({**GOOD, **change}) == expected


def test_two_names_with_one_value_agree() -> None:
    assert bars({**GOOD, "o": 10.0, "timestamp": 1_600_000_000}) == (GOOD_BAR,)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Reason.EMPTY_VALUE),
        (b"", Reason.EMPTY_VALUE),
        (b"\xff\xfe\x00", Reason.NOT_JSON),
        (b'{"open":"\xff"}', Reason.NOT_JSON),
        (b"{", Reason.NOT_JSON),
        (b'{"open":NaN}', Reason.NOT_JSON),
        (b'{"open":Infinity}', Reason.NOT_JSON),
        (b'{"open":1e999}', Reason.NOT_JSON),
        (b'{"open":1' + b"0" * 5000 + b"}", Reason.NOT_JSON),
        (b'{"open":"\\ud800"}', Reason.NOT_JSON),
        (b"[" * 100_000, Reason.NOT_JSON),
        (b"time,open\n1,2", Reason.NOT_JSON),
        (b"[]", Reason.EMPTY_LIST),
        (b"null", Reason.NOT_A_BAR),
        (b"3", Reason.NOT_A_BAR),
        (b'"bar"', Reason.NOT_A_BAR),
        (b"{}", Reason.MISSING_FIELD),
        ([1_588_280_400_000, "8", "9", "7", "8", "1"], Reason.NOT_A_BAR),
        ([[1_588_280_400_000, "8", "9", "7", "8", "1"]], Reason.NOT_A_BAR),
    ],
)
def test_bad_values(value: Any, expected: Reason) -> None:
    assert reason(value) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, Reason.KEY_MISSING),
        (b"", Reason.KEY_MISSING),
        (b"\xff", Reason.KEY_INVALID),
        (b"A" * 201, Reason.KEY_INVALID),
        (b"AA\nPL", Reason.KEY_INVALID),
        (b" AAPL", Reason.KEY_INVALID),
        ("\u0645\u06cc\u200c\u0631".encode(), Reason.KEY_INVALID),  # a joiner between its letters
        ("AAPL\u202e".encode(), Reason.KEY_INVALID),
        (b"MSFT", Reason.SYMBOL_MISMATCH),
    ],
)
def test_bad_keys(key: bytes | None, expected: Reason) -> None:
    assert reason({**GOOD, "symbol": "AAPL"}, key) == expected


@pytest.mark.parametrize("key", ["BTC/USD", "BRK.B", "^GSPC", "EURUSD=X", "日経 225", "A" * 200])
def test_any_printable_key_names_a_session(key: str) -> None:
    record = parse(GOOD, key.encode()).record
    assert record is not None
    assert record.key == key


def test_a_list_with_bad_bars_keeps_the_others() -> None:
    later = {**GOOD, "ts": GOOD["ts"] + 60}
    parsed = parse([later, {**GOOD, "high": 1}, GOOD, 7, {**GOOD, "symbol": "MSFT"}, {**GOOD, "open": 10**400}])
    assert parsed.record is not None
    assert [bar.time_us for bar in parsed.record.bars] == [1_600_000_000_000_000, 1_600_000_060_000_000]
    assert [(letter.bar, letter.reason) for letter in parsed.dead] == [
        (1, Reason.HIGH_BELOW_LOW),
        (3, Reason.NOT_A_BAR),
        (4, Reason.SYMBOL_MISMATCH),
        (5, Reason.NOT_FINITE),
    ]
    assert json.loads(parsed.dead[0].value or b"") == {**GOOD, "high": 1}
    assert parsed.bars_seen == 6


def test_details_say_what_to_do() -> None:
    for time, said in (
        ("2020-09-13T12:26", "offset"),
        (20231104093000, "2023-11-04 09:30:00"),
        ("04112023", "YYYYMMDD"),
        (93000, "clock"),
        (190_080_000_000, "compact date or an epoch"),
        ("soon", "neither"),
    ):
        (letter,) = parse({**GOOD, "ts": time}).dead
        assert repr(str(time)) in letter.detail
        assert said in letter.detail
        assert "2020-04-20T14:30:00Z" in letter.detail
    (letter,) = parse({"o": 1}).dead
    assert "time (ts|t|timestamp|time); high (high|h)" in letter.detail


def test_one_bad_record_does_not_touch_its_neighbours() -> None:
    parsed = parse_records([raw(GOOD, offset=4), raw(b"{", offset=7), raw([GOOD, GOOD], offset=9)])
    assert [p.raw.offset for p in parsed] == [4, 7, 9]
    assert [p.record is not None for p in parsed] == [True, False, True]
    assert parse_records([]) == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*ALIASES, "x"]), inner, max_size=9)
    ),
    max_leaves=12,
)
BARS = st.fixed_dictionaries(
    dict.fromkeys(("t", "o", "h", "l", "c"), st.integers(0, 3) | st.sampled_from(["1", "x", None, True, "nan"]))
)


@given(st.lists(st.binary(max_size=30) | JSON | st.lists(BARS, max_size=5) | BARS, max_size=12))
def test_count_in_is_count_out(values: list[Any]) -> None:
    parsed = parse_records([raw(v, offset=i) for i, v in enumerate(values)])
    assert [p.raw.offset for p in parsed] == list(range(len(values)))
    for item, value in zip(parsed, values, strict=True):
        good = len(item.record.bars) if item.record else 0
        assert good + len(item.dead) == item.bars_seen >= 1
        if isinstance(value, list) and any(isinstance(bar, dict) for bar in value):
            assert item.bars_seen == len(value)


@pytest.fixture
def shared_data() -> Path:
    folder = Path(__file__).parents[4] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the sample files in {folder}")
    return folder


def test_vendor_answers_bar_by_bar(shared_data: Path) -> None:
    answers = [json.loads(a) for a in (shared_data / "rest_polygon_alpaca_bars.jsonl").read_text().splitlines()]
    polygon = parse(answers[0]["results"])
    assert (len(polygon.record.bars) if polygon.record else 0) == 2
    alpaca = parse(answers[2]["bars"]["TSLA"], b"TSLA")
    assert alpaca.record is not None
    times = [bar.time_us for bar in alpaca.record.bars]
    assert times == sorted(times)  # that answer is newest first


def test_strings_for_numbers_of_a_real_exchange(shared_data: Path) -> None:
    with gzip.open(shared_data / "bitstamp_ohlc_btcusd_1m_2019-12-31.json.gz") as file:
        ohlc = json.load(file)["data"]["ohlc"]
    parsed = parse(ohlc, b"BTC/USD")
    assert parsed.record is not None
    assert (len(parsed.record.bars), parsed.dead) == (1000, ())


def test_klines_as_arrays_are_refused_as_one(shared_data: Path) -> None:
    with gzip.open(shared_data / "binance_klines_btcusdt_1h_2020-05.jsonl.gz") as file:
        assert reason(file.readline().strip(), b"BTCUSDT") == Reason.NOT_A_BAR
