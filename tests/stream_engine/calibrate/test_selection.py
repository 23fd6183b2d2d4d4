"""Choosing tau: by hand, and the guarantee over many drawn calibration sets with a known risk."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from stream_engine.calibrate.selection import (
    Grid,
    Point,
    certify,
    grid_of,
    p_value,
    smallest_certifiable,
    smallest_within,
    sweep,
)

DELTA, R_MAX = 0.1, 0.05
TAUS = tuple(0.25 * number for number in range(13))


def columns(rows: list[tuple[float, bool, bool]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gaps, in_set, differs = zip(*rows, strict=True)
    return np.array(gaps), np.array(in_set), np.array(differs)


def test_the_curve_counts_the_gate_as_it_decides() -> None:
    rows = [(0.5, True, True), (1.0, True, False), (2.0, False, True), (3.0, True, False), (3.0, True, True)]
    low, middle, high = sweep(*columns(rows), [1.0, 0.0, 3.0])
    assert (low.tau, low.windows, low.fired, low.errors) == (0.0, 5, 4, 2)
    assert (middle.tau, middle.fired, middle.errors) == (1.0, 2, 1), "a gap equal to tau does not fire"
    assert (high.fired, high.rate, high.coverage) == (0, 0.0, 0.0)
    assert low.coverage == 0.8
    below, above = middle.rate_interval
    assert below < middle.rate < above


def test_the_papers_rule_takes_the_smallest_tau_within_the_budget() -> None:
    points = [Point(0.0, 100, 90, 9), Point(1.0, 100, 80, 1), Point(2.0, 100, 70, 2), Point(3.0, 100, 0, 0)]
    chosen = smallest_within(points, 0.02)
    assert chosen is not None
    assert chosen.tau == 1.0
    assert smallest_within(points[:1] + points[3:], 0.02) is None, "a tau at which nothing fires promises nothing"


def test_a_sequence_stops_at_the_first_tau_that_fails_and_starts_where_it_must() -> None:
    points = [Point(0.0, 900, 900, 0), Point(1.0, 900, 800, 40), Point(2.0, 900, 700, 1), Point(3.0, 900, 5, 0)]
    grid = Grid((0.0, 1.0, 2.0, 3.0), 2.0)
    found = certify(points, grid, 0.02, 0.05)
    assert found is not None
    assert found.tau == 2.0, "0.0 would pass by itself, but lies behind one that fails"
    assert certify(points, Grid(grid.taus, 3.0), 0.02, 0.05) is None, "five clean windows certify nothing"


def test_p_values_and_bounds_agree_with_each_other_and_with_closed_forms() -> None:
    assert p_value(Point(0.0, 10, 0, 0), 0.02) == 1.0
    assert p_value(Point(0.0, 200, 149, 0), 0.02) == pytest.approx(0.98**149)
    assert smallest_certifiable(149, 0, 0.05) == pytest.approx(1 - 0.05 ** (1 / 149))
    assert smallest_certifiable(0, 0, 0.05) == smallest_certifiable(3, 3, 0.05) == 1.0
    bound = smallest_certifiable(121, 16, 0.05)
    assert p_value(Point(0.0, 128, 121, 16), bound) == pytest.approx(0.05)
    assert bound > 16 / 121


def test_the_grid_spans_the_pilots_gaps_and_starts_at_their_middle() -> None:
    grid = grid_of([0.1 * number for number in range(81)] + [math.inf])
    assert (grid.taus[0], grid.taus[-1]) == (0.0, 7.75)
    assert grid.start == 4.0
    assert grid.sequence[0] == 4.0
    assert grid.sequence[-1] == 0.0
    assert len(grid_of([1000.0, 2000.0]).taus) <= 65
    assert grid_of([]) == Grid((0.0,), 0.0)
    assert grid_of([0.1]).sequence == (0.0,)


def risk(gap: np.ndarray) -> np.ndarray:
    """Probability that a fast answer with this gap differs."""
    return 0.35 * np.exp(-1.2 * gap)


def true_rates(taus: tuple[float, ...]) -> dict[float, float]:
    """r(tau) for gaps of an exponential distribution with mean 1.5, by quadrature."""
    gap = np.linspace(0, 60, 600_001)
    density = np.exp(-gap / 1.5)
    return {tau: float((risk(gap) * density)[gap > tau].sum() / density[gap > tau].sum()) for tau in taus}


def test_the_guarantee_holds_over_two_thousand_drawn_calibration_sets_and_the_naive_rule_breaks_it() -> None:
    """Sets of 400 windows. The share of sets whose certified tau has a true rate over the budget stays within
    delta (and a binomial error of 3 sigma); the paper's rule breaks the budget far more often."""
    rng = np.random.default_rng(5)
    sets = 2_000
    rates, grid = true_rates(TAUS), Grid(TAUS, 2.0)
    assert rates[0.0] > R_MAX > rates[2.0], "the sweep crosses the budget"
    certified = naive = found = 0
    for _ in range(sets):
        gaps = rng.exponential(1.5, 400)
        differs = rng.random(400) < risk(gaps)
        points = sweep(gaps, np.ones(400, dtype=np.bool_), differs, TAUS)
        safe, lucky = certify(points, grid, R_MAX, DELTA), smallest_within(points, R_MAX)
        found += safe is not None
        certified += safe is not None and rates[safe.tau] > R_MAX
        naive += lucky is not None and rates[lucky.tau] > R_MAX
    allowed = binom.ppf(0.9987, sets, DELTA)
    assert certified <= allowed, f"{certified} of {sets}"
    assert naive > allowed, f"{naive} of {sets}"
    assert found > 0.5 * sets, "a rule that certifies nothing keeps its promise, but is of no use"


def test_the_guarantee_does_not_need_a_monotone_risk() -> None:
    """The risk is over the budget at tau 1 and within it at 2 and 0: one sequence in ten may pass tau 1."""
    rng = np.random.default_rng(6)
    sets, passed = 2_000, 0
    grid, everything = Grid((0.0, 1.0, 2.0), 2.0), np.ones(300, dtype=np.bool_)
    for _ in range(sets):
        gaps = rng.uniform(0.0, 3.0, 300)
        chance = np.select([gaps > 2, gaps > 1], [0.01, 0.12], 0.0)  # r(2) = 0.01, r(1) = 0.065, r(0) = 0.043
        safe = certify(sweep(gaps, everything, rng.random(300) < chance, grid.taus), grid, R_MAX, DELTA)
        passed += safe is not None and safe.tau < 2.0
    assert passed <= binom.ppf(0.9987, sets, DELTA)
