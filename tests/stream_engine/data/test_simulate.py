"""Simulated series: seeded, sane as bars, and of many kinds."""

from __future__ import annotations

import numpy as np

from stream_engine.data.simulate import simulate

BARS = simulate(np.random.default_rng(11), 600, 64)


def test_the_same_seed_gives_the_same_bars() -> None:
    again = simulate(np.random.default_rng(11), 600, 64)
    other = simulate(np.random.default_rng(12), 600, 64)
    assert np.array_equal(BARS.close, again.close)
    assert not np.array_equal(BARS.close, other.close)


def test_bars_are_consistent() -> None:
    assert np.isfinite([BARS.open, BARS.high, BARS.low, BARS.close]).all()
    assert (np.minimum(BARS.open, BARS.close) >= BARS.low).all()
    assert (np.maximum(BARS.open, BARS.close) <= BARS.high).all()
    assert (np.nan_to_num(BARS.volume) >= 0).all()
    assert (np.diff(BARS.time_us, axis=1) > 0).all()


def test_instruments_are_of_many_kinds() -> None:
    idle = (np.diff(BARS.close, axis=1) == 0).mean(axis=1)
    assert (idle == 0).mean() > 0.15
    assert (idle > 0.5).mean() > 0.05
    assert np.isnan(BARS.volume).all(axis=1).mean() > 0.05
    assert (BARS.volume == 0).any()
    assert (BARS.close < 0).any()
    middle = np.abs(np.median(BARS.close, axis=1))
    assert np.log10(np.quantile(middle, 0.95) / np.quantile(middle, 0.05)) > 5


def test_one_series_has_the_renderers_shape() -> None:
    series = BARS.series(3)
    assert len(series) == 64
    assert np.array_equal(series.close, BARS.close[3])
