"""Vendors' own messages on the topics: their short names are read as they mean them, or the message is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from consumers.wire.columns import Trade
from consumers.wire.reasons import RawRecord, Reason
from consumers.wire.records import BARS, ParsedItems, Wire, parse_items
from consumers.wire.trades import TRADES
from stream_engine.messages import Bar

AT_MS, AT_US = 1_626_992_741_421, 1_626_992_741_421_000
NOW_MS = 1_780_000_000_000


def parse(value: dict[str, Any], wire: Wire[Any], key: str = "X") -> ParsedItems[Any]:
    return parse_items([RawRecord("t", 0, 0, NOW_MS, key.encode(), json.dumps(value).encode())], wire)[0]


@pytest.mark.parametrize(
    ("message", "size", "name"),
    [
        ({"e": "trade", "E": AT_MS + 9, "s": "X", "t": 1_612_345_678, "p": "1.5", "q": "10", "T": AT_MS},
         10, 1_612_345_678),
        ({"e": "aggTrade", "E": AT_MS + 9, "a": 16, "s": "X", "p": "1.5", "q": "10", "l": 2, "T": AT_MS}, 10, 16),
        ({"ev": "T", "sym": "X", "i": "52", "p": 1.5, "s": 100, "t": AT_MS, "q": 3681328}, 100, "52"),
        ({"ev": "XT", "pair": "X", "p": 1.5, "t": AT_MS, "s": 0.02, "c": [0], "i": "7"}, 0.02, "7"),
        ({"T": "t", "S": "X", "i": 96921, "p": 1.5, "s": 1, "t": "2021-07-22T22:25:41.421Z"}, 1, 96921),
        ({"type": "match", "trade_id": 5, "size": "2", "price": "1.5", "time": "2021-07-22T22:25:41.421Z"}, 2, 5),
        ({"type": "ticker", "trade_id": 5, "price": "1.5", "last_size": "2", "volume_24h": "9",
          "time": "2021-07-22T22:25:41.421Z"}, 2, 5),
        ({"T": AT_MS, "s": "X", "S": "Buy", "v": "0.5", "p": "1.5", "L": "PlusTick", "i": "u"}, 0.5, "u"),
        ({"p": 1.5, "s": "X", "t": AT_MS, "v": 0.25, "c": None}, 0.25, None),
        ({"price": 1.5, "timestamp": AT_MS, "amount": 3, "id": "z", "datetime": "2021-07-22"}, 3, "z"),
    ],
)  # fmt: skip
def test_trades_as_vendors_write_them(message: dict[str, Any], size: float, name: Any) -> None:
    parsed = parse(message, TRADES)
    assert parsed.dead == ()
    (item,) = parsed.good
    assert item.value == Trade(AT_US, 1.5, size)
    assert item.fields.get("id") == name


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"type": "received", "size": "1", "price": "5", "time": AT_MS}, Reason.NOT_A_TRADE),
        ({"type": "done", "price": "5", "remaining_size": "0", "time": AT_MS}, Reason.NOT_A_TRADE),
        ({"e": "markPriceUpdate", "E": AT_MS, "s": "X", "p": "5", "T": AT_MS}, Reason.NOT_A_TRADE),
        ({"e": "24hrTicker", "E": AT_MS, "s": "X", "p": "5", "q": "9"}, Reason.NOT_A_TRADE),
        ({"ev": "AM", "sym": "X", "o": 1, "c": 1, "h": 1, "l": 1, "s": AT_MS, "e": AT_MS}, Reason.NOT_A_TRADE),
        # Stripped of its type: t is the trade's id, T its time.
        ({"s": "X", "t": 1_612_345_678, "p": "1.5", "q": "10", "T": AT_MS}, Reason.CONFLICT),
        ({"s": "X", "t": 12_345, "p": "1.5", "q": "10"}, Reason.TIME_INVALID),
        ({"p": 1.5, "s": 100, "t": AT_MS, "q": 3681328}, Reason.WRONG_TYPE),
    ],
)  # fmt: skip
def test_what_is_no_trade_or_may_be_two_things_is_refused(message: dict[str, Any], reason: Reason) -> None:
    parsed = parse(message, TRADES)
    assert parsed.good == ()
    assert [letter.reason for letter in parsed.dead] == [reason]


@pytest.mark.parametrize(
    "message",
    [
        {"ev": "AM", "sym": "X", "v": 10, "av": 99, "op": 9, "vw": 1, "o": 1, "c": 2, "h": 3, "l": 1, "a": 4,
         "s": AT_MS, "e": AT_MS + 60_000},
        {"ev": "XA", "pair": "X", "v": 10, "o": 1, "c": 2, "h": 3, "l": 1, "s": AT_MS, "e": AT_MS + 60_000},
        {"T": "b", "S": "X", "o": 1, "h": 3, "l": 1, "c": 2, "v": 10, "t": "2021-07-22T22:25:41.421Z", "n": 4},
        {"t": AT_MS, "T": AT_MS + 59_999, "s": "X", "i": "1m", "o": "1", "c": "2", "h": "3", "l": "1", "v": "10",
         "x": False, "q": "3957", "V": "7", "Q": "8"},
        {"start": AT_MS, "timestamp": AT_MS, "open": 1, "high": 3, "low": 1, "close": 2, "volume": 10},
    ],
)  # fmt: skip
def test_bars_as_vendors_write_them(message: dict[str, Any]) -> None:
    parsed = parse(message, BARS)
    assert parsed.dead == ()
    assert [item.value for item in parsed.good] == [Bar(AT_US, 1, 3, 1, 2, 10)]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        # The newest trade's time beside the bar's start, as Bybit sends it; its end beside it, as Kraken does.
        ({"timestamp": AT_MS, "start": AT_MS - 5_000}, Reason.CONFLICT),
        ({"timestamp": "2021-07-22T22:25:41Z", "interval_begin": "2021-07-22T22:24:41Z"}, Reason.CONFLICT),
        ({"timestamp": AT_MS, "time": AT_MS + 60_000}, Reason.CONFLICT),
        ({"date": 20210722, "time": 93000}, Reason.TIME_INVALID),
        ({"date": "2021-07-22", "time": "09:30:00"}, Reason.TIME_INVALID),
        ({"e": "kline", "t": AT_MS}, Reason.NOT_A_BAR),
    ],
)
def test_two_times_in_one_bar_are_refused(more: dict[str, Any], reason: Reason) -> None:
    parsed = parse({"open": 1, "high": 3, "low": 1, "close": 2, **more}, BARS)
    assert [letter.reason for letter in parsed.dead] == [reason]
