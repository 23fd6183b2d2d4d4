"""Wire format of trades: JSON as for bars (``consumers.wire.records``), with a price and mostly a size."""

from __future__ import annotations

from consumers.wire.columns import TRADE_NUMBERS, Trade, validate_trades
from consumers.wire.reasons import Reason
from consumers.wire.records import ALIASES, Wire
from consumers.wire.shapes import TRADE_SHAPES

_SHARED = {alias: field for alias, field in ALIASES.items() if field in ("time", "symbol")}

TRADE_ALIASES = {
    "price": "price",
    "p": "price",
    "size": "size",
    "qty": "size",
    "q": "size",
    "amount": "size",
    "trade_id": "id",
    "id": "id",
    **_SHARED,
}

TRADES: Wire[Trade] = Wire(
    noun="trade",
    example='{"price": ...}',
    unlike=Reason.NOT_A_TRADE,
    aliases=TRADE_ALIASES,
    required=("time", "price"),
    numbers=TRADE_NUMBERS,
    validate=validate_trades,
    shapes=TRADE_SHAPES,
    rivals=("T",),
)
