"""Confidence over the gap: rising, careful, and calibrated on pairs it never saw."""

from __future__ import annotations

import numpy as np
import pytest

from stream_engine.calibrate.confidence import calibration_error, fit_confidence
from stream_engine.decision.calibration import agreement


def truth(gaps: np.ndarray) -> np.ndarray:
    """Known probability of agreeing."""
    return 1.0 - 0.5 * np.exp(-0.9 * gaps)


def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    gaps = rng.exponential(2.0, count)
    return gaps, rng.random(count) < truth(gaps)


def test_no_pairs_give_no_confidence() -> None:
    assert fit_confidence(np.array([]), np.array([], dtype=np.bool_)) == ()


def test_pairs_that_all_agree_give_the_rule_of_succession_never_one() -> None:
    gaps = np.arange(1.0, 31.0)
    knots = fit_confidence(gaps, np.ones(30, dtype=np.bool_))
    assert agreement(knots, 0.5) == 0.5, "nothing is known below the smallest gap that was seen"
    for seen in (1, 2, 15, 30):
        assert agreement(knots, seen + 0.5) == pytest.approx((seen + 1) / (seen + 2), abs=1e-6)
    assert agreement(knots, 1e6) == pytest.approx(31 / 32, abs=1e-6)


def test_pairs_that_all_differ_give_little_confidence() -> None:
    knots = fit_confidence(np.arange(1.0, 31.0), np.zeros(30, dtype=np.bool_))
    assert agreement(knots, 0.5) == pytest.approx(1 / 32, abs=1e-6)
    assert agreement(knots, 10.5) == pytest.approx(1 / 22, abs=1e-6), "of the 20 pairs above it all differ"


def test_the_curve_rises_within_the_unit_interval_and_is_short() -> None:
    rng = np.random.default_rng(1)
    knots = fit_confidence(*draw(rng, 3_000))
    gaps, chances = zip(*knots, strict=True)
    assert gaps[0] == 0.0
    assert list(gaps) == sorted(set(gaps))
    assert list(chances) == sorted(set(chances))
    assert 0 < chances[0] < chances[-1] < 1
    assert 20 < len(knots) <= 48 + 1, "few enough to travel, enough for the curve"


def test_the_order_of_the_pairs_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    gaps, agrees = draw(rng, 200)
    gaps = np.round(gaps, 1)  # with ties
    shuffled = rng.permutation(200)
    assert fit_confidence(gaps, agrees) == fit_confidence(gaps[shuffled], agrees[shuffled])


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_confidence_is_calibrated_on_pairs_it_never_saw(seed: int) -> None:
    rng = np.random.default_rng(seed)
    knots = fit_confidence(*draw(rng, 2_000))
    gaps, agrees = draw(rng, 20_000)
    assert calibration_error(knots, gaps, agrees) < 0.03
    everywhere_sure = ((0.0, 1.0),)
    assert calibration_error(everywhere_sure, gaps, agrees) > 0.1, "the measure sees a curve that is too sure"


def test_the_error_of_a_known_curve_is_its_distance() -> None:
    gaps, agrees = np.full(1_000, 2.0), np.arange(1_000) % 10 < 8
    assert calibration_error(((0.0, 0.9),), gaps, agrees) == pytest.approx(0.1, abs=1e-9)
