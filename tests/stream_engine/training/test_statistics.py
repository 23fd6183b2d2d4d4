"""The labels by hand-made windows."""

from __future__ import annotations

import numpy as np
import pytest

from stream_engine.training.statistics import (
    momentum,
    momentum_m,
    position,
    position_share,
    trend,
    trend_z,
)


def zigzag(drift: float, bars: int = 33) -> np.ndarray:
    """Differences drift + 1, drift - 1, ...: mean `drift`, an even number of them."""
    steps = drift + np.array([1.0, -1.0] * ((bars - 1) // 2))
    return 10.0 + np.concatenate([[0.0], np.cumsum(steps)])


def test_trend_statistic_is_the_change_in_random_walk_deviations() -> None:
    closes = np.array([1.0, 2.0, 4.0, 3.0])
    deviation = np.std([1.0, 2.0, -1.0], ddof=1)
    assert trend_z(closes) == pytest.approx(2.0 / (deviation * np.sqrt(3)))


@pytest.mark.parametrize(("drift", "word"), [(0.2, 0), (-0.2, 1), (0.05, 2), (0.0, 2)])
def test_trend_follows_the_drift(drift: float, word: int) -> None:
    assert trend(zigzag(drift)).index == word


def test_trend_is_the_same_at_any_price_level_and_scale() -> None:
    closes = np.random.default_rng(0).normal(size=(50, 32)).cumsum(axis=1)
    expected = trend(closes)
    for moved in (closes - 1000.0, closes * 1e-6, closes * 100.0 + 37.0):
        assert np.array_equal(trend(moved).index, expected.index)
    assert np.array_equal(trend(-closes).index, np.array([1, 0, 2])[expected.index])


def test_windows_without_deviation_are_flat_middle_steady() -> None:
    for closes in (np.full(32, 7.0), np.full(32, 0.0), np.full(32, 0.1)):
        assert (trend(closes).index, position(closes).index, momentum(closes).index) == (2, 1, 2)
    line = np.linspace(1.0, 1.1, 32)
    assert trend(line).index == 2
    assert position(line).index == 0


@pytest.mark.parametrize(("last", "word"), [(0.0, 2), (0.9, 2), (1.1, 1), (1.9, 1), (2.1, 0), (3.0, 0)])
def test_position_is_the_third_of_the_range(last: float, word: int) -> None:
    closes = np.array([0.0, 3.0, 1.0, last])
    assert position_share(closes) == pytest.approx(last / 3.0)
    assert position(closes).index == word


def test_momentum_compares_the_halves_along_the_move() -> None:
    speeding = np.concatenate([zigzag(0.0, 17)[:16], zigzag(0.9, 17)[:16]])
    speeding[16:] += speeding[15] - speeding[16]
    assert momentum(speeding).index == 0
    assert momentum(-speeding).index == 0
    assert momentum(speeding[::-1]).index == 1
    assert momentum_m(speeding[::-1]) == pytest.approx(-momentum_m(speeding))
    assert momentum(zigzag(0.2, 33)[:32]).index == 2


def test_margin_is_the_distance_to_the_nearest_threshold() -> None:
    closes = np.random.default_rng(1).normal(size=(200, 32)).cumsum(axis=1)
    z = trend_z(closes)
    assert trend(closes).margin == pytest.approx(np.minimum(np.abs(z - 0.5), np.abs(z + 0.5)))
    assert np.all(position(closes).margin <= 1.0 / 3.0 + 1e-12)


def test_shares_of_a_random_walk() -> None:
    closes = np.random.default_rng(2).normal(size=(20_000, 32)).cumsum(axis=1)
    shares = np.bincount(trend(closes).index) / len(closes)
    assert shares == pytest.approx([0.31, 0.31, 0.38], abs=0.015)
