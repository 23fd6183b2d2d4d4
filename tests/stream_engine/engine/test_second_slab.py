"""The second slab is swapped in only where it is what the token log says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import Bar, Record

REGION, WINDOW = 64, 32


@pytest.fixture
def full(fed: Callable[..., Any]) -> Any:
    """A full region whose second slab is prefilled: the next bar makes a swap."""
    bench = fed(bars=REGION)
    session = bench.engine.sessions["AAPL"]
    assert session.region.full
    assert session.second is not None
    assert session.second.complete
    return bench


def is_exact(bench: Any) -> None:
    """Cells = tokens, and what was decoded on them is what a fresh prefill would have given."""
    session = bench.engine.sessions["AAPL"]
    base = bench.engine.budget.base_of("AAPL")
    assert session.resident == len(session.tokens)
    assert bench.runner.cells[base : base + session.resident] == session.tokens
    assert session.ready[""].gap == bench.expected("AAPL").gap


def test_the_bar_that_was_foreseen_takes_the_slab(full: Any, make_record: Callable[..., Record]) -> None:
    copied = full.runner.copied
    full.feed([make_record("AAPL", REGION)], REGION - 1)
    assert full.engine.counters.swaps_prepared_total == 1
    assert full.runner.copied > copied
    assert len(full.runner.steps[-1][0].append) == full.builder.tokens_per_bar
    is_exact(full)


@pytest.mark.parametrize("close", [-250.0, 300.0, 25_000.0])
def test_a_bar_outside_the_units_begins_another_region_than_was_foreseen(
    close: float, full: Any, make_record: Callable[..., Record]
) -> None:
    full.feed([make_record("AAPL", REGION, close=close)], REGION - 1)
    assert full.engine.sessions["AAPL"].swaps == 1
    assert full.engine.counters.swaps_prepared_total == 0
    is_exact(full)


def test_so_many_bars_at_once_that_the_foreseen_region_is_over(
    full: Any, make_record: Callable[..., Record]
) -> None:
    bars = range(REGION, REGION + WINDOW + 5)
    full.feed([make_record("AAPL", offset) for offset in bars], REGION - 1)
    assert full.engine.sessions["AAPL"].swaps == 2
    assert full.engine.counters.swaps_prepared_total == 0
    is_exact(full)


@pytest.mark.parametrize("index", [REGION - 1, REGION - 10])
def test_a_correction_and_the_swap_in_one_commit(
    index: int, full: Any, make_record: Callable[..., Record]
) -> None:
    """The corrected bar is one of the next region's: the slab holds what it was before."""
    records = [make_record("AAPL", REGION, index, 102.75), make_record("AAPL", REGION + 1, REGION)]
    full.feed(records, REGION - 1)
    assert full.engine.sessions["AAPL"].swaps == 1
    assert full.engine.counters.swaps_prepared_total == 0
    is_exact(full)


def test_after_a_correction_the_slab_is_made_anew(full: Any, make_record: Callable[..., Record]) -> None:
    """And serves the swap as the first one would have."""
    full.feed([make_record("AAPL", REGION, REGION - 10, 102.75)], REGION - 1)
    is_exact(full)
    full.feed([make_record("AAPL", REGION + 1, REGION)], REGION)
    assert full.engine.counters.swaps_prepared_total == 1
    is_exact(full)


def test_a_late_record_leaves_the_slab_as_it_is(full: Any, make_record: Callable[..., Record]) -> None:
    session = full.engine.sessions["AAPL"]
    slab, steps = session.second, len(full.runner.steps)
    full.feed([make_record("AAPL", REGION, index=-5)], REGION - 1)
    assert session.second is slab
    assert len(full.runner.steps) == steps, "it was in the cells already"


def test_a_swap_that_an_open_bar_made_is_undone_with_it(
    full: Any, make_bar: Callable[..., Bar], make_record: Callable[..., Record]
) -> None:
    """First the open bar takes the foreseen region; then it leaves the units, and that one never was."""
    for offset, close in ((REGION, 101.0), (REGION + 1, 400.0), (REGION + 2, 100.5)):
        record = Record("AAPL", offset, 1_000 + offset, (make_bar(REGION, close),), still_open=True)
        full.feed([record], offset - 1)
        is_exact(full)
