"""The units of a region: fitted to its first bars, the same for one bar and for many, at any price."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_engine.messages import Bar
from stream_engine.model.frame import (
    FIT_BARS,
    FIT_LEVEL,
    MAX_LEVEL,
    MAX_MOVE,
    NO_MOVE,
    UNIT_RANGE,
    VOLUMES,
    BarArrays,
    RegionFrame,
)


def bars_of(close: list[float], reach: float = 0.0, volume: float = float("nan"), seconds: int = 60) -> BarArrays:
    values = np.array(close, dtype=np.float64)
    return BarArrays(
        np.arange(len(values), dtype=np.int64) * seconds * 1_000_000,
        values,
        values + reach,
        values - reach,
        values,
        np.full(len(values), volume),
    )


def test_unit_is_the_median_nonzero_difference_and_reference_the_first_close() -> None:
    frame = RegionFrame.fit("AAPL", bars_of([100.0, 101.0, 101.0, 103.0, 102.0], volume=50.0, seconds=86_400))
    assert frame == RegionFrame("AAPL", 86_400, reference=100.0, unit=1.0, volume_unit=50.0)
    assert frame.levels(np.array([100.0, 101.0, 99.5, 100.06])).tolist() == [0, 8, -4, 0]


def test_only_the_first_bars_decide_the_units() -> None:
    first = [100.0 + (at % 2) for at in range(FIT_BARS)]
    fitted = RegionFrame.fit("X", bars_of(first))
    assert fitted == RegionFrame.fit("X", bars_of([*first, 500.0, -500.0]))


@pytest.mark.parametrize(
    ("close", "reach", "unit"),
    [([50.0] * 8, 0.25, 0.5), ([50.0] * 8, 0.0, 0.005), ([0.0] * 8, 0.0, 1.0), ([-40.0] * 8, 0.0, 0.004)],
)
def test_unit_without_a_difference_falls_back_to_range_then_price_then_one(
    close: list[float], reach: float, unit: float
) -> None:
    assert RegionFrame.fit("X", bars_of(close, reach)).unit == pytest.approx(unit)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_largest_numbers_have_units(size: int) -> None:
    most = sys.float_info.max
    rows = [Bar(n * 60_000_000, most * (-1) ** n, most, -most, most * (-1) ** n, most) for n in range(size)]
    frame = RegionFrame.fit("X", BarArrays.from_rows(rows))
    assert frame.volume_unit == most
    assert 0 < frame.unit <= UNIT_RANGE[1]


def test_no_bars_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="at least one bar"):
        RegionFrame.fit("X", bars_of([]))


def test_one_bar_has_no_bar_size_and_irregular_bars_their_median() -> None:
    assert RegionFrame.fit("X", bars_of([1.0])).bar_seconds is None
    bars = bars_of([1.0, 2.0, 3.0, 4.0])
    bars.time_us[:] = np.array([0, 60, 120, 9_000]) * 1_000_000
    assert RegionFrame.fit("X", bars).bar_seconds == 60


prices = st.floats(-1e7, 1e7, allow_nan=False).map(lambda value: round(value, 4))


@given(st.lists(prices, min_size=1, max_size=40))
def test_fitted_closes_always_fit_and_one_bar_renders_like_many(close: list[float]) -> None:
    bars = bars_of(close, reach=0.5, volume=3.0)
    frame = RegionFrame.fit("X", bars)
    assert frame.unit > 0
    together = frame.levels(bars.close)
    assert frame.fits(bars.close[:FIT_BARS]).all()
    assert np.abs(together[:FIT_BARS]).max() <= FIT_LEVEL
    assert np.abs(together).max() <= MAX_LEVEL
    assert together.tolist() == [int(frame.levels(bars.close[at : at + 1])[0]) for at in range(len(close))]
    moves, befores = frame.moves(bars.close, None), [None, *close]
    assert moves[0] == NO_MOVE
    assert np.abs(moves[1:]).max(initial=0) <= MAX_MOVE
    assert moves.tolist() == [
        int(frame.moves(bars.close[at : at + 1], befores[at])[0]) for at in range(len(close))
    ]


def test_bars_beyond_the_level_range_are_clipped_and_reported() -> None:
    frame = RegionFrame("X", 60, reference=0.0, unit=1.0, volume_unit=1.0)
    close = np.array([70.0, 70.1, -70.2, 1e9])
    assert frame.fits(close).tolist() == [True, False, False, False]
    assert frame.levels(close).tolist() == [560, 560, -560, 560]


def test_moves_are_signed_fine_near_zero_and_coarser_with_size() -> None:
    frame = RegionFrame("X", 60, reference=0.0, unit=2.0, volume_unit=1.0)
    closes = np.array([0.0, 0.0, 0.001, 0.0, 0.8, 0.86, 20.0, 20.5])
    moves = frame.moves(closes, None).tolist()
    assert moves[:4] == [NO_MOVE, 0, 1, -1]
    small, same = frame.moves(np.array([0.80]), 0.0)[0], frame.moves(np.array([0.86]), 0.0)[0]
    assert small != same
    large, near = frame.moves(np.array([20.0]), 0.0)[0], frame.moves(np.array([20.06]), 0.0)[0]
    assert large == near
    assert frame.moves(np.array([1e300]), -1e300)[0] == MAX_MOVE
    assert frame.moves(np.array([-1e300]), 1e300)[0] == -MAX_MOVE


def test_volumes_are_twelfths_of_a_doubling_with_none_apart() -> None:
    frame = RegionFrame("X", 60, reference=0.0, unit=2.0, volume_unit=10.0)
    volumes = frame.volumes(np.array([float("nan"), 0.0, 10.5, 21.0, 1e-9, 1e9]))
    assert volumes[:2].tolist() == [0, 0]
    assert volumes[3] - volumes[2] == 12
    assert volumes[4:].tolist() == [1, VOLUMES - 1]


@given(st.floats(0, 1e300, allow_nan=False), st.floats(-1e300, 1e300, allow_nan=False))
def test_every_volume_and_move_has_a_bucket(volume: float, move: float) -> None:
    frame = RegionFrame("X", 60, reference=0.0, unit=2.0, volume_unit=10.0)
    assert 0 <= int(frame.volumes(np.array([volume]))[0]) < VOLUMES
    bucket = int(frame.moves(np.array([move]), 0.0)[0])
    assert abs(bucket) <= MAX_MOVE
    assert np.sign(bucket) == np.sign(move)


def test_slices_and_rows_agree() -> None:
    class Row:
        time_us, open, high, low, close, volume = 5, 1.0, 3.0, 0.5, 2.0, float("nan")

    bars = BarArrays.from_rows([Row(), Row()])
    assert len(bars) == 2
    assert bars[1:].close.tolist() == [2.0]
    assert (bars.time_us.dtype, bars.close.dtype) == (np.int64, np.float64)
    assert len(BarArrays.from_rows([])) == 0
