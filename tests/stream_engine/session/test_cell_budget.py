"""Cells: shares, headroom, and who gives them up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_engine.session.cell_budget import BudgetShape, CellBudget

SHAPE = BudgetShape(total=310, max_sessions=3, reserve=40, prefix=10)


def test_shares_do_not_overlap_and_the_prefix_lies_behind_them() -> None:
    budget = CellBudget(SHAPE)
    assert sorted(budget.free) == [0, SHAPE.share, 2 * SHAPE.share]
    assert SHAPE.bench_base == 3 * SHAPE.share
    assert SHAPE.prefix_base == SHAPE.bench_base + SHAPE.share - 40
    assert SHAPE.cells == SHAPE.prefix_base + SHAPE.prefix


def test_headroom_is_what_live_cells_and_the_second_slab_leave() -> None:
    assert SHAPE.headroom(0) == SHAPE.share - 40
    assert SHAPE.headroom(SHAPE.share) < 0


def test_a_share_without_room_names_both_settings() -> None:
    with pytest.raises(ValueError, match=r"engine\.total_cells = 150.*engine\.max_sessions"):
        BudgetShape(total=150, max_sessions=3, reserve=40, prefix=10)


def filled(names: str) -> CellBudget:
    budget = CellBudget(SHAPE)
    for name in names:
        budget.give(name, budget.free[0])
    return budget


def test_the_least_recently_asked_gives_up_its_cells() -> None:
    budget = filled("abc")
    budget.touch("a")
    assert budget.free == ()
    assert budget.resident == ("b", "c", "a")
    base = budget.base_of("b")
    assert base is not None
    budget.release("b")
    assert budget.free == (base,)
    budget.give("d", base)
    assert budget.resident == ("c", "a", "d")
    assert (budget.base_of("b"), budget.base_of("d")) == (None, base)


def test_an_extent_has_one_owner() -> None:
    budget = filled("a")
    base = budget.base_of("a")
    assert base is not None
    with pytest.raises(ValueError, match="not in list"):
        budget.give("b", base)


def test_releasing_twice_gives_nothing_back_twice() -> None:
    budget = filled("a")
    budget.release("a")
    budget.release("a")
    budget.touch("a")
    assert budget.resident == ()
    assert len(budget.free) == SHAPE.max_sessions
    budget.check_integrity()


@given(st.lists(st.tuples(st.sampled_from(["give", "release", "touch"]), st.sampled_from("abcdef"))))
def test_extents_are_conserved(moves: list[tuple[str, str]]) -> None:
    budget = CellBudget(SHAPE)
    for move, name in moves:
        if move != "give":
            getattr(budget, move)(name)
        elif budget.free and budget.base_of(name) is None:
            budget.give(name, budget.free[0])
        budget.check_integrity()
        assert len(budget.free) + len(budget.resident) == SHAPE.max_sessions
