"""Gaps between events of one kind, as a mixture of exponentials: Poisson, bursts, silences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

BURST_GAPS, BURST_SHORT = 0.9, 0.01
"""Bursts: nine gaps in ten are a hundredth of the mean gap, so ten events come together on average."""

SILENT_GAPS, SILENCE = 0.01, 50.0
"""Silences: one gap in a hundred is fifty times as long as the others, as when a market is closed."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """A gap is exponential with mean ``means[i]`` seconds with probability ``weights[i]``."""

    weights: tuple[float, ...]
    means: tuple[float, ...]

    @classmethod
    def poisson(cls, rate: float) -> Gaps:
        """``rate`` events a second, without memory."""
        return cls((1.0,), (1 / rate,))

    @classmethod
    def bursts(cls, rate: float) -> Gaps:
        """As many a second, most of them close together."""
        long = (1 - BURST_GAPS * BURST_SHORT) / (1 - BURST_GAPS)
        return cls((BURST_GAPS, 1 - BURST_GAPS), (BURST_SHORT / rate, long / rate))

    @classmethod
    def silences(cls, rate: float) -> Gaps:
        """As many a second, with long silences between."""
        usual = 1 / (1 - SILENT_GAPS + SILENT_GAPS * SILENCE)
        return cls((1 - SILENT_GAPS, SILENT_GAPS), (usual / rate, SILENCE * usual / rate))

    @property
    def mean(self) -> float:
        """Seconds."""
        return sum(weight * mean for weight, mean in zip(self.weights, self.means, strict=True))

    def unbroken(self, rate: float) -> float:
        """Probability that a Poisson process of ``rate`` a second has no event in a gap (Laplace transform)."""
        return sum(weight / (1 + rate * mean) for weight, mean in zip(self.weights, self.means, strict=True))

    def after(self, seconds: float) -> Gaps:
        """What is left of a gap that has lasted so long already: the longer kinds are likelier by then. Raises
        ValueError where no gap lasts so long, within floats."""
        lasting = [
            weight * math.exp(-seconds / mean) for weight, mean in zip(self.weights, self.means, strict=True)
        ]
        if not sum(lasting):
            raise ValueError(f"no gap of mean {self.mean:g} s lasts {seconds:g} s")
        return Gaps(tuple(weight / sum(lasting) for weight in lasting), self.means)

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """``count`` independent gaps, in seconds."""
        means = np.asarray(self.means)[rng.choice(len(self.means), count, p=self.weights)]
        return rng.exponential(means)

    def draw_rest(self, rng: np.random.Generator) -> float:
        """What is left of the gap that is under way at an instant chosen without looking: a long gap is met more
        often. A trace whose first event is drawn so has no beginning that differs from the rest of it."""
        shares = np.asarray(self.weights) * np.asarray(self.means) / self.mean
        return float(rng.exponential(self.means[rng.choice(len(self.means), p=shares)]))


def hit_rate_between(updates: Gaps, queries: Gaps) -> float | None:
    """Eq. 8 where one of the two is not Poisson: the probability of a query in a gap between updates.

    ``updates`` are the gaps as a completed pre-position sees them: what is left after T_pp. That a query puts a
    pass off is left out. None where neither is Poisson: no formula is known for that here."""
    if len(queries.means) == 1:
        return 1 - updates.unbroken(1 / queries.mean)
    if len(updates.means) == 1:
        # From an update, which comes without looking at the queries, what is left of their gap outlasts the
        # time to the next update or does not.
        return (1 - queries.unbroken(1 / updates.mean)) * updates.mean / queries.mean
    return None
