"""Choosing tau: the risk-coverage curve, the paper's rule, and one with a finite-sample guarantee.

The risk is selective, `r(tau) = P(fast answer differs from the full path | the gate fires)` (Eq. 14), and its
denominator is random. For a tau that was fixed before the sample was seen this does no harm: given that n of
the sample's windows fire, those n are independent draws from the windows that fire at tau, so the number that
differs is Binomial(n, r(tau)) whatever n is. Hence `P(Bin(n, r_max) <= errors)` is a valid p-value of the
hypothesis `r(tau) > r_max` given n, and so without that condition; no window firing gives 1, which certifies
nothing.

A sweep tests many taus. Learn-then-Test with a fixed sequence goes from a starting tau down and stops at the first
that cannot be certified: an error needs the first tau of the sequence whose true rate is over the budget to be
certified, which has a probability of at most delta. No correction for the number of taus is due, and r(tau) need
not be monotone. The sequence must not depend on the sample: where it starts is taken from other windows
(`grid_of`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from stream_engine.util.intervals import wilson

GRID_STEPS = 64
"""At most so many steps of the grid between 0 and its top."""

GRID_UNIT = 0.25
"""The grid's values are multiples of this many logits."""


@dataclass(frozen=True, slots=True)
class Point:
    """The gate at one tau on one sample: windows, those that fire, and those of them that differ from the
    full path. ``coverage`` is Eq. 13, ``rate`` Eq. 14; the intervals are Wilson's at 95 %."""

    tau: float
    windows: int
    fired: int
    errors: int

    @property
    def coverage(self) -> float:
        return self.fired / self.windows if self.windows else 0.0

    @property
    def rate(self) -> float:
        return self.errors / self.fired if self.fired else 0.0

    @property
    def coverage_interval(self) -> tuple[float, float]:
        return wilson(self.fired, self.windows)

    @property
    def rate_interval(self) -> tuple[float, float]:
        return wilson(self.errors, self.fired)


@dataclass(frozen=True, slots=True)
class Grid:
    """Taus from 0 up, in logits; ``start`` is the one that a certifying sequence begins with, going down."""

    taus: tuple[float, ...]
    start: float

    @property
    def sequence(self) -> tuple[float, ...]:
        """The taus that may be certified, in the order of their tests."""
        return tuple(tau for tau in reversed(self.taus) if tau <= self.start)


def grid_of(gaps: Iterable[float]) -> Grid:
    """A grid that spans the gaps of pilot windows, and starts where half of these would fire.

    The pilot must not be part of the sample that is tested: that makes the start fixed in advance."""
    values = np.array([gap for gap in gaps if math.isfinite(gap)], dtype=np.float64)
    if not len(values):
        return Grid((0.0,), 0.0)
    top = float(np.quantile(values, 0.99))
    step = GRID_UNIT * max(1, math.ceil(top / (GRID_UNIT * GRID_STEPS)))
    taus = tuple(step * number for number in range(int(top // step) + 1))
    middle = float(np.median(values))
    return Grid(taus, max(tau for tau in taus if tau <= middle))


def sweep(
    gaps: NDArray[np.float64], in_set: NDArray[np.bool_], differs: NDArray[np.bool_], taus: Sequence[float]
) -> list[Point]:
    """The gate (Eq. 12) at each tau on a sample given as columns of equal length; ascending in tau."""
    points = []
    for tau in sorted(taus):
        fires = (gaps > tau) & in_set
        points.append(Point(tau, len(gaps), int(fires.sum()), int((fires & differs).sum())))
    return points


def smallest_within(points: Iterable[Point], r_max: float) -> Point | None:
    """The paper's choice: the smallest tau whose measured rate is within the budget and at which some window
    fires.

    It promises nothing of the true rate: a tau that was lucky in the sample is chosen more easily."""
    allowed = [point for point in points if point.fired and point.rate <= r_max]
    return min(allowed, key=lambda point: point.tau, default=None)


def p_value(point: Point, r_max: float) -> float:
    """Of the hypothesis that the true rate at this tau is over ``r_max``: exact binomial, 1 where none fired."""
    return float(binom.cdf(point.errors, point.fired, r_max)) if point.fired else 1.0


def certify(points: Iterable[Point], grid: Grid, r_max: float, delta: float) -> Point | None:
    """The smallest tau with `P(its true rate > r_max) <= delta`, the multiplicity of the sweep accounted for
    (fixed-sequence Learn-then-Test); None where not even the first of the sequence can be certified.

    It assumes that the sample's windows are exchangeable with those to be served."""
    by_tau = {point.tau: point for point in points}
    certified = None
    for tau in grid.sequence:
        if p_value(by_tau[tau], r_max) > delta:
            break
        certified = by_tau[tau]
    return certified


def smallest_certifiable(fired: int, errors: int, delta: float) -> float:
    """The smallest budget that a sample can certify for one tau fixed in advance: the exact (Clopper-Pearson)
    upper bound of its rate at level ``delta``, 1 where none fired. Where tau was chosen among k on the same
    sample, ask with ``delta / k``."""
    if errors >= fired:
        return 1.0
    return float(beta.ppf(1 - delta, errors + 1, fired - errors))
