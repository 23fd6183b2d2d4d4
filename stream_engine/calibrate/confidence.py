"""Confidence: the probability that a fast answer is the full path's, as a rising function of the gap.

Inductive Venn-Abers prediction (Vovk, Petej and Fedorova 2015): for a gap, isotonic regression is fitted twice to
the pairs and this one, once as if it disagreed and once as if it agreed, which gives `p0 <= p1`; their log-loss
combination `p1 / (1 - p0 + p1)` is the confidence. Where every pair agrees isotonic regression alone would say 1;
this says `(k + 1) / (k + 2)` with k the number of pairs at or below that gap: the rule of succession.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from stream_engine.decision.calibration import Knots, agreement

MOST_KNOTS = 48
"""At most so many steps: they travel to every API process."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def fit_confidence(gaps: Floats, agrees: Flags) -> Knots:
    """Steps of the confidence over the gap, from pairs where top-1 is in the set; none without pairs.

    Between two steps the lower one holds: dropping steps makes the curve more careful, never less."""
    if not len(gaps):
        return ()
    # Within a tie those that agree come first: isotonic regression then pools the tie to its mean.
    order = np.lexsort((~agrees, gaps))
    gaps, agrees = gaps[order], agrees[order]
    steps = [(0.0, _venn_abers(agrees, 0))]
    starts = np.unique(gaps)
    for gap in starts[_spread(len(starts))].tolist():
        chance = _venn_abers(agrees, int(np.searchsorted(gaps, gap, side="right")))
        if chance > steps[-1][1]:
            steps.append((max(0.0, gap), chance))
    return tuple(steps)


def calibration_error(knots: Knots, gaps: Floats, agrees: Flags, bins: int = 10) -> float:
    """Expected calibration error on other pairs: mean |confidence - share that agrees|, in equal bins."""
    if not len(gaps):
        return math.nan
    said = np.array([agreement(knots, gap) for gap in gaps.tolist()], dtype=np.float64)
    # Pairs of one confidence stay in one bin: the curve is a step function.
    places = np.searchsorted(np.unique(np.quantile(said, np.linspace(0, 1, bins + 1)[1:-1])), said)
    groups = [places == place for place in np.unique(places)]
    weighted = [group.sum() * abs(float(said[group].mean() - agrees[group].mean())) for group in groups]
    return float(sum(weighted) / len(gaps))


def _spread(count: int) -> NDArray[np.int64]:
    """Indexes of at most `MOST_KNOTS` of `count` values: the lower half of them dense at the small gaps, where
    the curve bends."""
    if count <= MOST_KNOTS:
        return np.arange(count)
    even = np.linspace(0, count - 1, MOST_KNOTS // 2)
    dense = np.geomspace(1, count, MOST_KNOTS // 2) - 1
    return np.unique(np.concatenate([even, dense]).astype(np.int64))


def _venn_abers(agrees: Flags, place: int) -> float:
    """The combined probability for a gap that has ``place`` of the pairs at or below it."""
    low, high = (
        float(isotonic_regression(np.insert(agrees.astype(np.float64), place, label))[place])
        for label in (0.0, 1.0)
    )
    return round(high / (1.0 - low + high), 6)
