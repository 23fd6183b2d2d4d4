"""Bounds that hold at every look, and a detector whose false alarms and delays are counted by simulation."""

from __future__ import annotations

import copy
import math
import random
import statistics

import pytest

from stream_engine.risk.sequential import ChangeDetector, rate_bounds

BUDGET, LEVEL, HORIZON = 0.02, 0.05, 5_000


def binomial_bound(trials: int, probability: float) -> float:
    """A count that a binomial exceeds with probability below one in a thousand."""
    return trials * probability + 3.1 * math.sqrt(trials * probability * (1 - probability))


def delay(detector: ChangeDetector, rate: float, chance: random.Random, limit: int) -> int | None:
    """Checks up to and including the alarm."""
    return next((n for n in range(1, limit + 1) if detector.observe(chance.random() < rate)), None)


def test_nothing_is_known_before_the_first_check() -> None:
    assert rate_bounds(0, 0, BUDGET, LEVEL) == (0.0, 1.0)


@pytest.mark.parametrize(("count", "faults"), [(1, 0), (1, 1), (50, 0), (50, 7), (50, 50), (20_000, 400)])
def test_the_bounds_enclose_the_estimate_and_end_where_the_mixture_says(count: int, faults: int) -> None:
    lower, upper = rate_bounds(count, faults, BUDGET, LEVEL)
    assert 0.0 <= lower <= faults / count <= upper <= 1.0
    assert (lower == 0.0) == (faults == 0)
    assert (upper == 1.0) == (faults == count)

    def log_martingale(rate: float) -> float:
        """Product form: each check's predictive probability under the prior against that under ``rate``."""
        a, b, total = 1.0, 1 / BUDGET - 1, 0.0
        for index in range(count):
            fault = index < faults
            total += math.log((a if fault else b) / (a + b)) - math.log(rate if fault else 1 - rate)
            a, b = a + fault, b + (not fault)
        return total

    for edge in (lower, upper):
        if 0.0 < edge < 1.0:
            assert log_martingale(edge) == pytest.approx(math.log(1 / LEVEL), abs=1e-6)


def test_bounds_narrow_like_the_root_of_the_count() -> None:
    widths = [upper - lower for lower, upper in (rate_bounds(n, n // 50, BUDGET, LEVEL) for n in (500, 50_000))]
    assert 5 < widths[0] / widths[1] < 12


@pytest.mark.parametrize("rate", [0.005, 0.02, 0.2])
def test_bounds_cover_at_all_looks_together(rate: float) -> None:
    chance = random.Random(f"cover {rate}")
    runs, missed = 200, 0
    looks = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377}
    for _ in range(runs):
        faults = 0
        for count in range(1, max(looks) + 1):
            faults += chance.random() < rate
            if count in looks:
                lower, upper = rate_bounds(count, faults, BUDGET, LEVEL)
                if not lower <= rate <= upper:
                    missed += 1
                    break
    assert missed <= binomial_bound(runs, LEVEL)


def test_a_planted_rate_of_five_budgets_is_caught_within_150_checks() -> None:
    delays = [
        delay(ChangeDetector(BUDGET, LEVEL, HORIZON), 0.10, random.Random(seed), 5_000) for seed in range(100)
    ]
    assert statistics.median(found or math.inf for found in delays) <= 150


def test_false_alarms_are_within_the_stated_level() -> None:
    """At the budget itself, the worst of the rates that are allowed."""
    runs = 200
    alarms = sum(
        delay(ChangeDetector(BUDGET, LEVEL, HORIZON), BUDGET, random.Random(seed), HORIZON) is not None
        for seed in range(runs)
    )
    assert alarms <= binomial_bound(runs, LEVEL)


def test_the_evidence_of_a_clean_stream_grows_no_faster_than_its_length() -> None:
    """E[R_n] <= n, by which the threshold is set: exactly, by the expected ratio at the budget."""
    detector = ChangeDetector(BUDGET, LEVEL, HORIZON)
    expected = sum(
        BUDGET * fault + (1 - BUDGET) * clean
        for fault, clean in zip(detector._fault, detector._clean, strict=True)
    )
    assert expected == pytest.approx(len(detector._fault))
    assert detector.threshold == HORIZON / LEVEL


def test_a_long_clean_past_does_not_hide_a_change() -> None:
    """One past for all, of half the budget; the running rate would need hundreds of faults to show the change."""
    chance = random.Random(0)
    past = ChangeDetector(BUDGET, LEVEL, HORIZON)
    assert delay(past, BUDGET / 2, chance, 5_000) is None
    fresh, late = [], []
    for _ in range(100):
        fresh.append(delay(ChangeDetector(BUDGET, LEVEL, HORIZON), 0.10, chance, 5_000) or math.inf)
        late.append(delay(copy.copy(past), 0.10, chance, 5_000) or math.inf)
    assert statistics.median(late) <= 150
    assert statistics.median(late) <= 1.2 * statistics.median(fresh)


def test_one_fault_alone_is_no_evidence() -> None:
    detector = ChangeDetector(BUDGET, LEVEL, HORIZON)
    assert not detector.observe(True)
    assert 0 < detector.evidence < detector.threshold / 1_000


@pytest.mark.parametrize("budget", [0.5, 0.9])
def test_a_budget_of_any_size_has_alternatives_above_it(budget: float) -> None:
    detector = ChangeDetector(budget, LEVEL, 100)
    assert delay(detector, 1.0, random.Random(0), 1_000) is not None


def test_bounds_of_a_tiny_budget_are_numbers() -> None:
    """The interval's upper end rounds to 1: nothing may fail on the way there."""
    for guess in (1e-3, 3e-4, 1e-5, 1e-9):
        lower, upper = rate_bounds(6, 5, guess, 0.05)
        assert 0.0 < lower < 5 / 6 < upper <= 1.0
