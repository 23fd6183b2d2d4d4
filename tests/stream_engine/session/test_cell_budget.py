"""Cells: slabs, the pool, headroom, and who gives them up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_engine.session.cell_budget import BudgetShape, CellBudget, Use

SHAPE = BudgetShape(sessions=3, slab=60, extents=2, extent=40, prefix=10, cell_bytes=100)


def test_nothing_of_the_store_overlaps() -> None:
    budget = CellBudget(SHAPE)
    assert [budget.free(after) for after in range(4)] == [0, 60, 120, None]
    assert [budget.spare(after) for after in range(3)] == [SHAPE.pool_base, SHAPE.pool_base + 40, None]
    assert SHAPE.pool_base == 3 * 60
    assert SHAPE.bench_base == SHAPE.pool_base + 2 * 40
    assert SHAPE.prefix_base == SHAPE.bench_base + SHAPE.share
    assert SHAPE.cells == SHAPE.prefix_base + 10


def test_headroom_is_what_live_cells_leave_of_the_slab() -> None:
    assert SHAPE.headroom(0) == 60
    assert SHAPE.headroom(61) < 0


@given(st.integers(1, 5_000), st.integers(11, 900), st.integers(11, 400), st.sampled_from([2, 7_680]))
def test_as_many_sessions_as_have_room(sessions: int, slab: int, extent: int, cell_bytes: int) -> None:
    sizes = {"slab": slab, "extent": extent, "prefix": 10, "cell_bytes": cell_bytes}
    size = SHAPE.fit(10**12, **sizes).bytes_for(sessions)
    shape = BudgetShape.fit(size, **sizes)
    assert (shape.sessions, shape.cells * cell_bytes) == (sessions, size)
    assert shape.extents >= max(2, sessions / 8)
    if sessions > 1:
        assert BudgetShape.fit(size - 1, **sizes).sessions == sessions - 1


def test_less_than_one_session_needs_is_refused_with_what_it_needs() -> None:
    sizes = {"slab": 60, "extent": 40, "prefix": 10, "cell_bytes": 100}
    assert BudgetShape.fit(25_000, **sizes).sessions == 1
    with pytest.raises(ValueError, match="one session needs 25000 bytes: 250 cells of 100"):
        BudgetShape.fit(24_999, **sizes)


def filled(names: str) -> CellBudget:
    budget = CellBudget(SHAPE)
    for name in names:
        base = budget.free()
        assert base is not None
        budget.give(name, base)
    return budget


def test_the_least_recently_asked_gives_up_its_cells() -> None:
    budget = filled("abc")
    budget.touch("a")
    assert budget.free() is None
    assert budget.resident == ("b", "c", "a")
    assert [budget.least_used(keep) for keep in (set(), {"b"}, {"a", "b", "c"})] == ["b", "c", None]
    base = budget.base_of("b")
    assert base is not None
    budget.release("b")
    assert budget.free() == base
    budget.give("d", base)
    assert budget.resident == ("c", "a", "d")
    assert (budget.base_of("b"), budget.base_of("d")) == (None, base)


def test_a_slab_and_an_extent_have_one_owner() -> None:
    budget = filled("ab")
    base, extent = budget.base_of("a"), budget.spare()
    assert base is not None
    assert extent is not None
    with pytest.raises(ValueError, match="not in list"):
        budget.give("b", base)
    budget.lend("a", Use.BRANCHES, extent)
    with pytest.raises(ValueError, match="not in deque"):
        budget.lend("b", Use.BRANCHES, extent)


def test_only_who_has_cells_borrows_and_once_for_a_use() -> None:
    budget = filled("a")
    first, second = budget.spare(), budget.spare(after=1)
    assert first is not None
    assert second is not None
    with pytest.raises(AssertionError, match="has none"):
        budget.lend("b", Use.BRANCHES, first)
    budget.lend("a", Use.BRANCHES, first)
    with pytest.raises(AssertionError, match="already"):
        budget.lend("a", Use.BRANCHES, second)
    budget.lend("a", Use.SECOND_SLAB, second)
    assert (budget.lent("a", Use.SECOND_SLAB), budget.spare()) == (second, None)


def test_what_a_plan_counts_on_stays_when_something_is_given_back() -> None:
    budget = filled("ab")
    first, second = budget.spare(), budget.spare(after=1)
    assert first is not None
    budget.lend("a", Use.BRANCHES, first)
    assert budget.spare() == second
    budget.give_back("a", Use.BRANCHES)
    assert (budget.spare(), budget.spare(after=1)) == (second, first)


def test_the_last_extents_are_kept() -> None:
    assert SHAPE.kept_for_branches == 1
    budget = filled("a")
    base = budget.spare(keep=1)
    assert base is not None
    budget.lend("a", Use.SECOND_SLAB, base)
    assert budget.spare(keep=1) is None
    assert budget.spare() is not None


def test_what_is_used_is_counted_in_cells() -> None:
    budget = filled("ab")
    fixed = SHAPE.bench + SHAPE.prefix
    assert budget.cells_used == 120 + fixed
    base = budget.spare()
    assert base is not None
    budget.lend("a", Use.BRANCHES, base)
    assert budget.cells_used == 160 + fixed
    budget.release("a")
    assert budget.cells_used == 60 + fixed


def test_releasing_twice_gives_nothing_back_twice() -> None:
    budget = filled("a")
    budget.release("a")
    budget.release("a")
    budget.touch("a")
    assert (budget.resident, budget.free_count) == ((), 3)
    budget.check_integrity()


MOVES = ["give", "release", "touch", *Use]


@given(st.lists(st.tuples(st.sampled_from(MOVES), st.sampled_from("abcdef"), st.booleans())))
def test_cells_are_conserved(moves: list[tuple[str | Use, str, bool]]) -> None:
    budget = CellBudget(SHAPE)
    for move, name, back in moves:
        if isinstance(move, Use):
            base, there = budget.spare(), budget.base_of(name) is not None
            if back:
                budget.give_back(name, move)
            elif base is not None and there and budget.lent(name, move) is None:
                budget.lend(name, move, base)
        elif move != "give":
            getattr(budget, move)(name)
        elif (slab := budget.free()) is not None and budget.base_of(name) is None:
            budget.give(name, slab)
        budget.check_integrity()
        assert budget.free_count + budget.resident_count == SHAPE.sessions


def test_an_overlap_of_the_pool_is_seen() -> None:
    budget = filled("ab")
    base = budget.spare()
    assert base is not None
    budget.lend("a", Use.BRANCHES, base)
    budget._lent[Use.SECOND_SLAB]["b"] = base
    with pytest.raises(AssertionError, match="of the pool"):
        budget.check_integrity()
