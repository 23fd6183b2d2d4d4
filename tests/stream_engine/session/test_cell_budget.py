"""Cells: shares, headroom, and who gives them up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_engine.session.cell_budget import BudgetShape, CellBudget

SHAPE = BudgetShape(total=310, max_sessions=3, reserve=40, prefix=10)


def test_shares_do_not_overlap_and_the_prefix_lies_behind_them() -> None:
    budget = CellBudget(SHAPE)
    bases = sorted(base for name in "abc" if (taken := budget.acquire(name)) is not None for base in taken[:1])
    assert bases == [0, SHAPE.share, 2 * SHAPE.share]
    assert SHAPE.bench_base == 3 * SHAPE.share
    assert SHAPE.prefix_base == SHAPE.bench_base + SHAPE.share - 40
    assert SHAPE.cells == SHAPE.prefix_base + SHAPE.prefix


def test_headroom_is_what_live_cells_and_the_second_slab_leave() -> None:
    assert SHAPE.headroom(0) == SHAPE.share - 40
    assert SHAPE.headroom(SHAPE.share) < 0


def test_a_share_without_room_names_both_settings() -> None:
    with pytest.raises(ValueError, match=r"engine\.total_cells = 150.*engine\.max_sessions"):
        BudgetShape(total=150, max_sessions=3, reserve=40, prefix=10)


def test_the_least_recently_asked_gives_up_its_cells() -> None:
    budget = CellBudget(SHAPE)
    for name in "abc":
        budget.acquire(name)
    budget.touch("a")
    assert not budget.has_free
    base = budget.base_of("b")
    assert budget.acquire("d") == (base, "b")
    assert budget.resident == ("c", "a", "d")
    assert budget.base_of("b") is None


def test_kept_sessions_are_never_evicted() -> None:
    budget = CellBudget(SHAPE)
    for name in "abc":
        budget.acquire(name)
    assert budget.acquire("d", keep="abc") is None
    assert budget.resident == ("a", "b", "c")
    taken = budget.acquire("d", keep="ab")
    assert taken is not None
    assert taken[1] == "c"


def test_acquiring_again_changes_nothing() -> None:
    budget = CellBudget(SHAPE)
    first = budget.acquire("a")
    assert budget.acquire("a") == first
    budget.release("a")
    budget.release("a")
    budget.touch("a")
    assert budget.resident == ()
    assert budget.has_free


@given(st.lists(st.tuples(st.sampled_from(["acquire", "release", "touch"]), st.sampled_from("abcdef"))))
def test_extents_are_conserved(moves: list[tuple[str, str]]) -> None:
    budget = CellBudget(SHAPE)
    for move, name in moves:
        getattr(budget, move)(name)
        bases = [budget.base_of(one) for one in budget.resident]
        assert len(set(bases)) == len(bases) <= SHAPE.max_sessions
        assert budget.has_free is (len(bases) < SHAPE.max_sessions)
