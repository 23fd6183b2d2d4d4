"""The data region: order, units, swaps and odd but legal data."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from stream_engine.messages import Bar
from stream_engine.model.frame import MAX_LEVEL, BarArrays, RegionFrame
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.session.region import Region, StoredBar

MINUTE = 60_000_000


def bar(index: int, close: float, *, spread: float = 0.5, volume: float = 10.0) -> StoredBar:
    return StoredBar(Bar(index * MINUTE, close, close + spread, close - spread, close, volume), index, index)


def walk(count: int, start: int = 0) -> list[StoredBar]:
    return [bar(start + n, 100 + ((start + n) * 7 % 11) * 0.5) for n in range(count)]


@pytest.fixture
def region(builder: TokenBuilder) -> Region:
    return Region("AAPL", builder)


def rendered(region: Region, builder: TokenBuilder) -> list[int]:
    """The region's tokens from its bars and frame alone."""
    assert region.frame is not None
    columns = BarArrays.from_rows(stored.bar for stored in region.bars)
    return [*builder.anchor(region.frame), *builder.bars(region.frame, columns).ravel().tolist()]


def test_appended_bars_keep_all_tokens_before_them(region: Region, builder: TokenBuilder) -> None:
    region.extend(walk(40))
    before = region.tokens()
    change = region.extend([bar(40, 101.0)])
    assert (change.kept_tokens, change.rebuilt, change.late) == (len(before), False, ())
    assert region.tokens()[: len(before)] == before
    assert region.boundary(41) == len(region.tokens()) == len(before) + builder.tokens_per_bar


def test_the_region_holds_one_to_two_windows(region: Region, builder: TokenBuilder) -> None:
    window, capacity = builder.profile.window_bars, builder.profile.region_bars
    sizes = []
    for stored in walk(3 * capacity):
        region.extend([stored])
        sizes.append(len(region))
    assert max(sizes) == capacity
    assert min(sizes[capacity:]) == window + 1
    assert region.bars[-1].offset == 3 * capacity - 1


def test_the_second_slab_is_the_beginning_of_the_next_region(region: Region) -> None:
    region.extend(walk(64))
    assert region.full
    prepared = region.next_tokens()
    change = region.extend([bar(64, 101.0)])
    assert change.rebuilt
    assert region.tokens()[: len(prepared)] == prepared
    assert len(region) == 33


def test_an_equal_time_replaces_and_an_older_one_rolls_back(region: Region, builder: TokenBuilder) -> None:
    region.extend(walk(40))
    change = region.extend([StoredBar(bar(39, 103.0).bar, 40, 40)])
    assert change.kept_tokens == region.boundary(39)
    change = region.extend([StoredBar(bar(0, 99.5).bar, 41, 41)])  # the region's very first bar
    assert (change.kept_tokens, change.late) == (region.boundary(0), ())
    assert [stored.bar.close for stored in region.bars][::39] == [99.5, 103.0]
    assert region.tokens() == rendered(region, builder)


def test_a_corrected_close_changes_the_next_bars_move_too(region: Region, builder: TokenBuilder) -> None:
    region.extend(walk(40))
    before = region.tokens()
    at, size = region.boundary(20), builder.tokens_per_bar
    change = region.extend([StoredBar(bar(20, 101.0).bar, 40, 40)])
    after = region.tokens()
    assert change.kept_tokens == at
    assert after[at + size] == before[at + size]  # the level of the bar behind it
    assert after[at + size + 1] != before[at + size + 1]  # its move
    assert after[at + 2 * size :] == before[at + 2 * size :]


def test_a_gap_may_be_filled_later(region: Region, builder: TokenBuilder) -> None:
    region.extend([bar(0, 100.0), bar(5, 101.0), bar(3, 100.5)])
    assert [stored.bar.time_us // MINUTE for stored in region.bars] == [0, 3, 5]
    assert region.tokens() == rendered(region, builder)


def test_bars_older_than_the_region_are_late_and_change_nothing(region: Region) -> None:
    region.extend(walk(40, start=10))
    before = region.tokens()
    late = [bar(3, 1.0), bar(9, 1.0)]
    change = region.extend(late)
    assert change.late == tuple(late)
    assert change.kept_tokens == len(before)
    assert region.tokens() == before


def test_a_record_of_500_bars_is_500_records_of_one(builder: TokenBuilder) -> None:
    at_once, one_by_one = Region("X", builder), Region("X", builder)
    bars = walk(500)
    change = at_once.extend(bars)
    for stored in bars:
        one_by_one.extend([stored])
    assert change.rebuilt
    assert at_once.tokens() == one_by_one.tokens()
    assert at_once.bars == one_by_one.bars


@pytest.mark.parametrize("seed", range(5))
def test_grouping_never_matters(seed: int, builder: TokenBuilder) -> None:
    chance = random.Random(seed)
    bars = []
    for index in range(1, 301):
        at = index - chance.randint(1, 70) if chance.random() < 0.1 and index > 2 else index
        jump = 300.0 if chance.random() < 0.02 else 0.0
        bars.append(bar(at, 100 + chance.gauss(0, 1) + jump))
    whole, parts = Region("X", builder), Region("X", builder)
    whole.extend(bars)
    start = 0
    while start < len(bars):
        size = chance.randint(1, 40)
        before = parts.tokens()
        change = parts.extend(bars[start : start + size])
        assert parts.tokens()[: change.kept_tokens] == before[: change.kept_tokens]
        assert parts.tokens() == rendered(parts, builder)
        start += size
    assert parts.tokens() == whole.tokens()


@pytest.mark.parametrize(
    "closes",
    [
        [0.0] * 40,
        [100.0] * 40,
        [-37.63 + n * 0.01 for n in range(40)],
        [(-1) ** n * 0.5 for n in range(40)],
        [0.0, 5e-324] * 20,
        [1e308, -1e308] * 20,
        [1e-300 * n for n in range(40)],
        [1.0, 1e308] + [1.0] * 38,
    ],
    ids=["zero", "equal", "negative", "sign-changes", "denormal", "huge", "tiny", "spike"],
)
def test_odd_but_finite_prices_make_tokens(closes: Sequence[float], region: Region, builder: TokenBuilder) -> None:
    for spread in (0.0, 0.5):
        for index, close in enumerate(closes):
            region.extend([bar(index, close, spread=spread, volume=math.nan)])
        assert region.tokens() == rendered(region, builder)
        assert len(region.tokens()) <= builder.max_anchor_tokens + len(region) * builder.tokens_per_bar


def test_extreme_ranges_and_volumes_make_tokens(region: Region, builder: TokenBuilder) -> None:
    for index, volume in enumerate([0.0, 5e-324, 1e308, math.nan, 1.0]):
        region.extend([StoredBar(Bar(index * MINUTE, 0.0, 1e308, -1e308, 0.0, volume), index, 0)])
    assert region.tokens() == rendered(region, builder)


def test_days_and_years_between_bars_are_legal(region: Region, builder: TokenBuilder) -> None:
    year = 365 * 24 * 60
    region.extend([bar(0, 100.0), bar(1, 101.0), bar(year, 102.0), bar(40 * year, 99.0)])
    assert len(region) == 4
    assert region.tokens() == rendered(region, builder)


def test_units_are_fitted_once_more_when_the_window_is_complete(region: Region) -> None:
    region.extend(walk(1))
    changes = [region.extend([stored]) for stored in walk(40, start=1)]
    assert [index + 2 for index, change in enumerate(changes) if change.rebuilt] == [32]


def test_a_bar_outside_the_unit_forces_a_window_in_its_own_units(region: Region) -> None:
    region.extend(walk(50))
    change = region.extend([bar(50, 5_000.0)])
    assert change.rebuilt
    assert len(region) == 32
    assert region.frame is not None
    assert region.frame.fits(np.array([5_000.0]))[0]


def test_a_bar_outside_the_units_of_the_very_swap_it_makes(region: Region) -> None:
    region.extend(walk(64))
    region.extend([bar(64, 5_000.0)])
    assert region.frame is not None
    assert region.frame.levels(np.array([5_000.0]))[0] < MAX_LEVEL  # a level of its own, not the last one
    assert region.bars[-1].bar.close == 5_000.0
    assert len(region) >= 32


def test_a_region_of_one_window_does_not_grow(builder: TokenBuilder) -> None:
    profile = dataclasses.replace(builder.profile, window_bars=32, region_bars=32)
    narrow = TokenBuilder(profile, builder._tokenizer)
    region = Region("X", narrow)
    for stored in walk(100):
        region.extend([stored])
        assert len(region) <= 32
    assert region.bars[-1].offset == 99


@pytest.mark.parametrize("symbol", ["^GSPC", "BTC/USD", "[x]?*", "EURUSD=X", "日経", "x" * 500, " "])
def test_any_symbol_fits_the_anchor(symbol: str, builder: TokenBuilder) -> None:
    region = Region(symbol, builder)
    region.extend(walk(2))
    assert region.boundary(0) <= builder.max_anchor_tokens


def test_a_restored_region_goes_on_as_the_first_one_would(builder: TokenBuilder) -> None:
    first, second = Region("X", builder), Region("X", builder)
    first.extend(walk(80))
    units = first.stored()[1]
    assert units is not None
    second.restore(first.bars, units)
    assert second.tokens() == first.tokens()
    for stored in walk(70, start=80):
        first.extend([stored])
        second.extend([stored])
        assert second.tokens() == first.tokens()


def test_a_window_of_a_wider_region_is_cut_to_this_ones(builder: TokenBuilder) -> None:
    wide = Region("X", builder)
    wide.extend(walk(64))
    units = wide.stored()[1]
    assert units is not None
    profile = dataclasses.replace(builder.profile, window_bars=16, region_bars=32)
    narrow = Region("X", TokenBuilder(profile, builder._tokenizer))
    narrow.restore(wide.bars, units)
    assert [stored.offset for stored in narrow.bars] == list(range(32, 64))
    narrow.extend(walk(1, start=64))
    assert len(narrow) == 17


def test_an_empty_region_has_no_units(region: Region) -> None:
    assert region.stored() == ([], None, False)
    assert region.tokens() == []
    assert region.extend([]).kept_tokens == 0


def test_no_bars_fit_no_frame() -> None:
    with pytest.raises(ValueError, match="at least one bar"):
        RegionFrame.fit("X", BarArrays.from_rows([]))


def test_a_split_forces_a_window_in_its_own_units(region: Region, builder: TokenBuilder) -> None:
    window = builder.profile.window_bars
    region.extend(walk(window + 10))
    before = region.frame
    assert region.extend([bar(window + 10, 51.0)]).rebuilt  # 2:1, and well within the units' range
    assert before is not None
    assert before.fits(np.array([51.0]))[0]
    assert len(region) == window
    assert region.tokens() == rendered(region, builder)
    assert not region.extend([bar(window + 11, 51.5)]).rebuilt


@pytest.mark.parametrize("close", [70.0, 101.0])
def test_a_large_move_that_is_no_jump_keeps_the_region(close: float, region: Region) -> None:
    region.extend(walk(40))
    assert not region.extend([bar(40, close)]).rebuilt


def test_a_price_that_turns_about_zero_jumps_only_by_units(region: Region) -> None:
    region.extend(bar(n, (-1) ** n * 0.5) for n in range(40))
    assert not region.extend([bar(40, 0.1), bar(41, -0.6)]).rebuilt


def test_gaps_are_counted_once_and_kept(region: Region) -> None:
    region.extend(walk(3))
    assert region.extend([bar(4, 100.0)]).gaps == 1  # before there are units
    region.extend(walk(36, start=5))
    changes = [region.extend([bar(index, 100.0)]).gaps for index in (42, 43, 43, 41, 44, 50)]
    assert changes == [1, 0, 0, 0, 0, 1]
    assert [stored.bar.time_us // MINUTE for stored in region.bars[-6:]] == [40, 41, 42, 43, 44, 50]


@pytest.mark.parametrize("seed", range(6))
def test_an_open_bar_leaves_no_trace_once_it_has_changed(seed: int, builder: TokenBuilder) -> None:
    """Prices seen only meanwhile may be splits and crashes; a restart may come between any two."""
    chance = random.Random(seed)
    seen, closed = Region("X", builder), Region("X", builder)
    price = 100.0
    for index in range(3 * builder.profile.region_bars):
        price += chance.gauss(0, 0.5)
        meanwhile = [price * chance.choice((1.001, 0.999, 0.5, 40.0)) for _ in range(chance.randrange(3))]
        final = price * chance.choice((1.0,) * 40 + (0.5,))
        for value in (*meanwhile, final):
            before = seen.tokens()
            change = seen.extend([bar(index, value)], still_open=True)
            assert seen.tokens()[: change.kept_tokens] == before[: change.kept_tokens]
            assert seen.tokens() == rendered(seen, builder)
            if chance.random() < 0.1:
                stored = seen.stored()
                seen = Region("X", builder)
                seen.restore(*stored)
        price = final
        closed.extend([bar(index, final)])
        assert seen.tokens() == closed.tokens()


def test_an_open_bar_that_grows_keeps_all_tokens_before_it(region: Region, builder: TokenBuilder) -> None:
    capacity = builder.profile.region_bars
    region.extend(walk(capacity))
    assert region.extend([bar(capacity, 101.0)], still_open=True).rebuilt  # the swap
    change = region.extend([bar(capacity, 101.5)], still_open=True)
    assert (change.rebuilt, change.kept_tokens) == (False, region.boundary(len(region) - 1))


LAST = walk(40)[-1].bar.close


@pytest.mark.parametrize(
    ("close", "rebuilt"),
    [(LAST * 0.66, False), (LAST * 0.64, True), (LAST * 1.34, False), (LAST * 1.36, True)],
)
def test_a_jump_is_more_than_35_percent(close: float, rebuilt: bool, region: Region) -> None:
    region.extend(walk(40))
    assert region.extend([bar(40, close)]).rebuilt is rebuilt


@pytest.mark.parametrize(("share", "rebuilt"), [(0.66, False), (0.64, True)])
def test_a_share_of_a_negative_price_is_one_of_its_size(share: float, rebuilt: bool, region: Region) -> None:
    region.extend(bar(n, -each.bar.close) for n, each in enumerate(walk(40)))
    assert region.extend([bar(40, -LAST * share)]).rebuilt is rebuilt


@pytest.mark.parametrize(("move", "rebuilt"), [(-7.9, False), (-8.1, True), (7.9, False), (8.1, True)])
def test_about_zero_a_jump_is_more_than_eight_units(move: float, rebuilt: bool, region: Region) -> None:
    """Closes of 0.5 and -0.5 in turn: the unit is 1, and a share of the price says nothing."""
    region.extend(bar(n, (-1) ** n * 0.5) for n in range(40))
    assert region.extend([bar(40, -0.5 + move)]).rebuilt is rebuilt


@pytest.mark.parametrize(("steps", "gaps"), [(1.4, 0), (1.6, 1)])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_a_gap_is_more_than_one_and_a_half_bars(steps: float, gaps: int, count: int, region: Region) -> None:
    region.extend(walk(count))
    newest = region.bars[-1].bar
    after = dataclasses.replace(
        region.bars[-1], bar=msgspec.structs.replace(newest, time_us=newest.time_us + int(steps * MINUTE))
    )
    assert region.extend([after]).gaps == gaps


def test_all_gaps_of_a_record_are_counted(region: Region) -> None:
    region.extend(walk(40))
    assert region.extend([bar(index, 100.0) for index in (42, 45, 46)]).gaps == 2


def test_a_gap_before_the_bar_that_makes_a_swap_is_counted(region: Region, builder: TokenBuilder) -> None:
    capacity = builder.profile.region_bars
    region.extend(walk(capacity))
    change = region.extend([bar(capacity + 3, 100.0)])
    assert (change.rebuilt, change.gaps) == (True, 1)


def test_a_restart_does_not_fit_the_units_of_corrected_bars(region: Region, builder: TokenBuilder) -> None:
    """Corrections after the fit leave the units alone; so does the next bar after a restart."""
    region.extend(walk(40))
    frame = region.frame
    region.extend([bar(index, 110.0 + index) for index in range(16)])
    again = Region("AAPL", builder)
    again.restore(*region.stored())
    for each in (region, again):
        assert not each.extend([bar(40, 101.0)]).rebuilt
        assert each.frame == frame
    assert again.tokens() == region.tokens()


def test_bars_that_follow_each_other_from_the_first_one_on_have_no_gaps(region: Region) -> None:
    assert [region.extend([each]).gaps for each in walk(5)] == [0] * 5


def test_a_corrected_first_bar_is_no_jump_from_the_newest(region: Region) -> None:
    region.extend(walk(40))
    assert not region.extend([bar(0, LAST * 0.6)]).rebuilt


def test_a_small_share_of_a_large_price_may_leave_the_units(region: Region, builder: TokenBuilder) -> None:
    """A move of 100 units that no share of the price tells: 0.01 % of it."""
    region.extend(bar(n, 1e6 + n % 2) for n in range(40))
    assert not region.extend([bar(40, 1e6 + 50)]).rebuilt
    assert region.extend([bar(41, 1e6 + 150)]).rebuilt
    assert region.tokens() == rendered(region, builder)


def test_late_bars_are_told_of_beside_a_split(region: Region) -> None:
    region.extend(walk(40, start=10))
    late = bar(1, 100.0)
    change = region.extend([late, bar(50, 20.0)])
    assert (change.rebuilt, change.late) == (True, (late,))


def test_an_open_bar_is_undone_in_a_record_that_goes_on_after_it(region: Region, builder: TokenBuilder) -> None:
    """The crash that was seen meanwhile had made a region of its own."""
    region.extend(walk(40))
    region.extend([bar(40, 1.0)], still_open=True)
    region.extend([bar(40, 101.0), bar(41, 101.5)])
    never = Region("AAPL", builder)
    never.extend([*walk(40), bar(40, 101.0), bar(41, 101.5)])
    assert region.tokens() == never.tokens() == rendered(region, builder)


def test_only_the_newest_bar_can_be_open(region: Region) -> None:
    """A correction inside stays, though the record that brought it says that its bar is open."""
    region.extend(walk(40))
    region.extend([bar(20, 105.0)], still_open=True)
    region.extend([bar(39, 101.0)])
    assert (region.bars[20].bar.close, region.bars[39].bar.close, len(region)) == (105.0, 101.0, 40)
