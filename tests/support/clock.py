"""A clock that moves only when a test moves it."""

from __future__ import annotations


class Clock:
    """Stands in for the ``time`` module, or for one function of it. ``now`` is in seconds."""

    def __init__(self, now: float = 1_000.0) -> None:
        self._ns = round(now * 1e9)

    @property
    def now(self) -> float:
        return self._ns / 1e9

    @now.setter
    def now(self, seconds: float) -> None:
        self._ns = round(seconds * 1e9)

    def forward(self, seconds: float) -> None:
        self._ns += round(seconds * 1e9)

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return self._ns

    time_ns = monotonic_ns
