"""Messages of vendors whose short names mean something else: each is told by its own mark, never guessed.

Sources: the vendors' documentation of their streams (Binance, Bybit, Coinbase, Finnhub, Polygon, Alpaca, Kraken).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """``names`` replace the usual ones where ``marks`` holds. None: it is no item of the kind, and is refused."""

    vendor: str
    marks: Callable[[Item], bool]
    names: Mapping[str, str] | None


def _says(field: str, *values: str) -> Callable[[Item], bool]:
    def marks(item: Item) -> bool:
        said = item.get(field)
        return isinstance(said, str) and said in values

    return marks


def _bybit(item: Item) -> bool:
    return _says("S", "Buy", "Sell")(item) and item.keys() >= {"T", "p", "v"}


def _finnhub(item: Item) -> bool:
    return {"p", "s", "t", "v"} <= item.keys() <= {"c", "p", "s", "t", "v"}


_BINANCE_OTHER = _says(
    "e", "kline", "continuous_kline", "24hrTicker", "24hrMiniTicker", "bookTicker", "depthUpdate",
    "markPriceUpdate", "forceOrder", "executionReport",
)  # fmt: skip
_COINBASE_OTHER = _says(
    "type", "received", "open", "done", "change", "activate", "l2update", "snapshot", "heartbeat", "subscriptions",
    "status", "error",
)  # fmt: skip
_POLYGON_BAR = {"s": "time", "o": "open", "h": "high", "l": "low", "c": "close", "v": "volume"}
_BINANCE = {"s": "symbol", "T": "time", "p": "price", "q": "size"}

TRADE_SHAPES = (
    Shape("Binance", _says("e", "trade"), {**_BINANCE, "t": "id"}),
    Shape("Binance", _says("e", "aggTrade"), {**_BINANCE, "a": "id"}),
    Shape("Binance", _BINANCE_OTHER, None),
    Shape("Polygon", _says("ev", "T"), {"sym": "symbol", "p": "price", "s": "size", "t": "time", "i": "id"}),
    Shape("Polygon", _says("ev", "XT"), {"pair": "symbol", "p": "price", "s": "size", "t": "time", "i": "id"}),
    Shape("Polygon", _says("ev", "A", "AM", "XA", "XAS", "CA", "CAS", "Q", "XQ", "C", "LULD"), None),
    Shape("Alpaca", _says("T", "t"), {"S": "symbol", "p": "price", "s": "size", "t": "time", "i": "id"}),
    Shape("Alpaca", _says("T", "q", "b", "u", "d", "s", "l", "c", "x"), None),
    Shape(
        "Coinbase",
        _says("type", "ticker"),
        {"price": "price", "last_size": "size", "time": "time", "trade_id": "id"},
    ),
    Shape("Coinbase", _COINBASE_OTHER, None),
    Shape("Bybit", _bybit, {"s": "symbol", "T": "time", "p": "price", "v": "size", "i": "id"}),
    Shape("Finnhub", _finnhub, {"s": "symbol", "t": "time", "p": "price", "v": "size"}),
)
BAR_SHAPES = (
    Shape("Binance", _BINANCE_OTHER, None),
    Shape("Polygon", _says("ev", "A", "AM"), {"sym": "symbol", **_POLYGON_BAR}),
    Shape("Polygon", _says("ev", "XA", "XAS", "CA", "CAS"), {"pair": "symbol", **_POLYGON_BAR}),
)
BAR_STARTS = (
    "start", "start_time", "startTime", "open_time", "openTime", "interval_begin", "begin", "bucket",
)  # fmt: skip
"""Names of a bar's start: where one is beside another time, the other may be its end, or of its newest trade."""
