"""Read back from the tokens: bars within what their buckets leave open, the statistics nearly always the same."""

from __future__ import annotations

import numpy as np

from stream_engine.data.simulate import simulate
from stream_engine.data.statistics import labels, statistics
from stream_engine.model.frame import LEVELS_A_UNIT, RegionFrame
from stream_engine.training.ceiling import read_back

BARS = simulate(np.random.default_rng(77), 600, 64)


def test_closes_and_volumes_come_back_within_their_buckets() -> None:
    for row in range(50):
        series = BARS.series(row)[:32]
        frame = RegionFrame.fit("X", series)
        closes, volumes = read_back(frame, series)
        true = (series.close - frame.reference) / frame.unit
        assert np.abs(closes - true).max() <= 1.0 / LEVELS_A_UNIT + 1e-6
        assert np.array_equal(np.diff(closes) == 0, np.diff(series.close) == 0)
        inside = (series.volume > 0.01 * frame.volume_unit) & (series.volume < 60 * frame.volume_unit)
        ratio = volumes[inside] / (series.volume[inside] / frame.volume_unit)
        assert np.all(np.abs(np.log2(ratio)) <= 1 / 24 + 1e-9)
        assert np.array_equal(volumes > 0, series.volume > 0)


def test_every_statistic_is_still_there() -> None:
    true, seen = [], []
    for row in range(600):
        region = BARS.series(row)[: 32 + row % 33]
        frame = RegionFrame.fit("X", region)
        if frame.fits(region.close).all():
            true.append((region.close[-32:], region.volume[-32:]))
            seen.append(tuple(column[-32:] for column in read_back(frame, region)))
    assert len(true) >= 0.98 * 600
    names = tuple(statistics(32))
    right, read = (
        labels(*(np.array(column) for column in zip(*windows, strict=True)), names) for windows in (true, seen)
    )
    for name in names:
        assert np.mean(right[name].index == read[name].index) >= 0.97, name
