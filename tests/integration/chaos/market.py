"""Records of a bad day: bars, lists, corrections, late bars, poison, splits, and symbols that are quiet."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2024, 1, 2, tzinfo=UTC)
HISTORY = 33
"""Bars of each symbol's first record: from then on its window is complete."""


@dataclass(frozen=True, slots=True)
class Made:
    """A record to publish. ``newest``: once it is applied it is the symbol's last one."""

    symbol: str
    partition: int
    key: bytes | None
    value: bytes | None
    newest: bool = False


class Market:
    """Records of ``symbols``, in an order and with contents that ``chance`` decides. The last ones are quiet."""

    def __init__(self, chance: random.Random, symbols: int, partitions: int, quiet: int) -> None:
        self._chance = chance
        self._partitions = partitions
        self.symbols = [f"SYM{number:02d}" for number in range(symbols)]
        self._active = self.symbols[: symbols - quiet]
        self._bars = dict.fromkeys(self.symbols, 0)
        self._close = {symbol: chance.uniform(20, 400) for symbol in self.symbols}
        self._kinds = {
            self._next: 70,
            self._several: 6,
            self._correction: 8,
            self._late: 3,
            self._half_bad: 3,
            self._split: 1,
            self._poison: 6,
        }

    def partition_of(self, symbol: str) -> int:
        return int(symbol[-2:]) % self._partitions

    def history(self) -> list[Made]:
        """The first record of every symbol, also of the quiet ones."""
        return [self._made(symbol, [self._bar(symbol) for _ in range(HISTORY)], True) for symbol in self.symbols]

    def record(self) -> Made:
        """Any record of an active symbol."""
        symbol = self._chance.choice(self._active)
        (make,) = self._chance.choices(list(self._kinds), list(self._kinds.values()))
        return make(symbol)

    def mark(self, partition: int) -> Made:
        """A new bar in that partition."""
        return self._next(next(s for s in self._active if self.partition_of(s) == partition))

    def murmur(self) -> Made:
        """A new bar of a quiet symbol."""
        return self._next(self._chance.choice(self.symbols[len(self._active) :]))

    def _next(self, symbol: str) -> Made:
        return self._made(symbol, self._bar(symbol), True)

    def _several(self, symbol: str) -> Made:
        return self._made(symbol, [self._bar(symbol) for _ in range(self._chance.randint(2, 4))], True)

    def _correction(self, symbol: str) -> Made:
        """Another bar for a time that has one: the last, or one inside the window."""
        back = self._chance.choice([1, 1, self._chance.randint(2, 20)])
        return self._made(symbol, self._bar_at(symbol, self._bars[symbol] - back))

    def _late(self, symbol: str) -> Made:
        return self._made(symbol, self._bar_at(symbol, -self._chance.randint(1, 1000)))

    def _half_bad(self, symbol: str) -> Made:
        good = self._bar(symbol)
        bad = dict(self._bar_at(symbol, self._bars[symbol]), high="high")
        return self._made(symbol, self._chance.choice([[good, bad], [bad, good]]), True)

    def _split(self, symbol: str) -> Made:
        self._close[symbol] *= self._chance.choice([0.5, 2.0])
        return self._next(symbol)

    def _poison(self, symbol: str) -> Made:
        """Nothing in it can be taken."""
        bar = self._bar_at(symbol, self._bars[symbol])
        whole = json.dumps(bar).encode()
        other = json.dumps(dict(bar, symbol="OTHER")).encode()
        swapped = json.dumps(dict(bar, high=bar["low"] - 1)).encode()
        key = symbol.encode()
        keyed: tuple[bytes | None, bytes | None] = self._chance.choice(
            [
                (key, whole[:-7]),
                (key, b""),
                (key, b"[]"),
                (key, b"\xff\xfe"),
                (key, other),
                (key, swapped),
                (None, whole),
                (b" ", whole),
            ]
        )
        return Made(symbol, self.partition_of(symbol), *keyed)

    def _bar(self, symbol: str) -> dict[str, Any]:
        """The next bar of a walk."""
        self._close[symbol] *= 1 + self._chance.gauss(0, 0.002)
        self._bars[symbol] += 1
        return self._bar_at(symbol, self._bars[symbol] - 1)

    def _bar_at(self, symbol: str, number: int) -> dict[str, Any]:
        close = self._close[symbol] * (1 + self._chance.gauss(0, 0.0005))
        low, high = close * (1 - self._chance.random() / 500), close * (1 + self._chance.random() / 500)
        at = (START + timedelta(minutes=number)).isoformat()
        return {"ts": at, "open": (low + high) / 2, "high": high, "low": low, "close": close, "volume": 10}

    def _made(self, symbol: str, value: Any, newest: bool = False) -> Made:
        return Made(symbol, self.partition_of(symbol), symbol.encode(), json.dumps(value).encode(), newest)
