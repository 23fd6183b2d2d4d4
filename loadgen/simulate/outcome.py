"""Shares and means over simulated sessions, each with its standard error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.simulate.simulator import Tally


@dataclass(frozen=True, slots=True)
class Estimate:
    """None where nothing was counted; the error is None for a single session, too."""

    value: float | None
    error: float | None

    @classmethod
    def ratio(cls, parts: Sequence[float], wholes: Sequence[float]) -> Estimate:
        """Sum of parts / sum of wholes, one of each a session. The sessions are independent, whatever happens
        within one is not, so the error is that of a ratio of means over sessions."""
        above, below = np.asarray(parts, float), np.asarray(wholes, float)
        if not below.sum():
            return cls(None, None)
        value, count = above.sum() / below.sum(), len(below)
        if count == 1:
            return cls(float(value), None)
        spread = np.sqrt(np.sum((above - value * below) ** 2) * count / (count - 1))
        return cls(float(value), float(spread / below.sum()))


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """Of all sessions of one run."""

    tallies: tuple[Tally, ...]

    def total(self, name: str) -> float:
        """Sum of one count or time of the tallies."""
        return float(sum(self.each(name)))

    def each(self, name: str) -> list[float]:
        return [float(getattr(tally, name)) for tally in self.tallies]

    @property
    def rho(self) -> float:
        """Queries an update, as they came."""
        return self.total("queries") / self.total("updates")

    @property
    def hit_rate(self) -> Estimate:
        """h of Eq. 8: of the completed pre-positions those that were read."""
        return Estimate.ratio(self.each("hits"), self.each("completed"))

    @property
    def skipped(self) -> Estimate:
        """Of the updates those whose entry had no room in the share of the cell budget."""
        return Estimate.ratio(self.each("skipped"), self.each("updates"))

    @property
    def expected_ms(self) -> Estimate:
        """E[L_pp] as Eq. 9 weighs it: over completed pre-positions, L_cold for one that was wasted."""
        return Estimate.ratio(self.each("settled_ms"), self.each("completed"))

    @property
    def query_ms(self) -> Estimate:
        """Mean latency of all queries."""
        return Estimate.ratio(self.each("query_ms"), self.each("queries"))

    @property
    def load(self) -> float:
        """The accelerator's time for queries and pre-positions of one session, over the session's time."""
        return self.total("busy_ms") / 1e3 / self.total("seconds")
