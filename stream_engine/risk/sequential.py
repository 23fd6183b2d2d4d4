"""Anytime-valid statistics of a stream of checks, each with or without a fault: right however often one looks.

Both rest on nonnegative supermartingales, so no number of looks spoils their level (Ramdas, Grünwald, Vovk,
Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

FACTORS = (2.0, 5.0, 15.0)
"""Alternatives that the detector looks for, in multiples of the budget: a drift, a fault, a break."""


def rate_bounds(count: int, faults: int, guess: float, level: float) -> tuple[float, float]:
    """Lower and upper bound of a constant fault rate after ``count`` checks with ``faults`` faults.

    A confidence sequence: P(the rate is outside at any count whatever) <= ``level``. It is the beta-binomial
    mixture of Robbins, "Statistical methods related to the law of the iterated logarithm", 1970 (Howard, Ramdas,
    McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", 2021): with
    the likelihood ratio averaged over a Beta(a, b) prior,

        M_n(p) = B(a + k, b + n - k) / B(a, b) / (p^k (1 - p)^(n - k)),

    E[M_n] = 1 at the true p, so by Ville's inequality M_n(p) ever reaches 1 / level with probability <= level. The
    bounds are the two ends of ``{p: M_n(p) < 1 / level}``, found by bisection. ``guess`` is the prior's mean, 0 to
    1: it decides where the interval is narrowest, not whether it is right.
    """
    if count == 0:
        return 0.0, 1.0
    a, b = 1.0, max(1.0, 1.0 / guess - 1.0)
    mixture = _log_beta(a + faults, b + count - faults) - _log_beta(a, b) + math.log(level)

    def excluded(rate: float) -> bool:
        if not 0.0 < rate < 1.0:  # an end of the bisection: the estimate lies inside, so the ends are excluded
            return True
        likelihood = faults * math.log(rate) if faults else 0.0
        likelihood += (count - faults) * math.log1p(-rate) if faults < count else 0.0
        return mixture >= likelihood

    estimate = faults / count
    lower = _edge(excluded, 0.0, estimate) if faults else 0.0
    upper = _edge(excluded, 1.0, estimate) if faults < count else 1.0
    return lower, upper


class ChangeDetector:
    """Shiryaev-Roberts detector of a fault rate above the budget; it restarts by itself at every check.

    For each alternative q > budget, ``R_n = (1 + R_(n-1)) L_n`` with the likelihood ratio ``L = q / budget`` of a
    fault and ``(1 - q) / (1 - budget)`` else; the evidence is the mean over the alternatives. For every true rate
    p <= budget, also one that changes,

        E[L] = 1 + (p - budget) (q - budget) / (budget (1 - budget)) <= 1,

    so ``R_n - n`` is a supermartingale (an e-detector: Shin, Ramdas, Rinaldo, "E-detectors", 2022). Stopped at
    the first crossing, that gives P(the evidence reaches ``horizon / level`` within ``horizon`` checks) <= level.
    That is where each check's chance of a fault, given all before it, is within the budget, as for exchangeable
    decision points; where faults come together (overlapping windows of one session) alarms are likelier.
    A long clean past does not hide a change: each check adds the 1 of a change that begins there.
    """

    __slots__ = ("_clean", "_fault", "_sums", "threshold")

    def __init__(self, budget: float, level: float, horizon: int) -> None:
        alternatives = [min(factor * budget, (1 + budget) / 2) for factor in FACTORS]
        self._fault = [rate / budget for rate in alternatives]
        self._clean = [(1 - rate) / (1 - budget) for rate in alternatives]
        self._sums = [0.0] * len(alternatives)
        self.threshold = horizon / level

    @property
    def sums(self) -> tuple[float, ...]:
        """The R of each alternative: all that the detector knows of its past."""
        return tuple(self._sums)

    def resume(self, sums: Sequence[float]) -> bool:
        """Go on from the ``sums`` of a detector with the same budget. False where there are not as many."""
        if len(sums) != len(self._sums):
            return False
        self._sums = list(sums)
        return True

    @property
    def evidence(self) -> float:
        return sum(self._sums) / len(self._sums)

    def observe(self, fault: bool) -> bool:
        """One more check; True when the evidence has passed the threshold."""
        ratios = self._fault if fault else self._clean
        self._sums = [(1.0 + total) * ratio for total, ratio in zip(self._sums, ratios, strict=True)]
        return self.evidence >= self.threshold


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _edge(excluded: Callable[[float], bool], outside: float, inside: float) -> float:
    """Where ``excluded`` ends, from ``outside`` (never looked at) to ``inside``; on its outer side."""
    for _ in range(60):
        middle = (outside + inside) / 2
        if excluded(middle):
            outside = middle
        else:
            inside = middle
    return outside
