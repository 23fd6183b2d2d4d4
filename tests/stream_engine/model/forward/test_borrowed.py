"""Cells behind a slab's end may lie anywhere: what is computed there is what would have been computed in a row."""

from __future__ import annotations

import pytest
import torch

from stream_engine.model.backbones.loader import load_backbone
from stream_engine.model.forward.step import Borrowed, Branch, Segment, cell_runs, lay_out
from stream_engine.model.profile import EMBEDDED

TRUNK = tuple(range(50, 80))
BRANCHES = (Branch((90, 91, 92), 30), Branch((95, 96, 97, 98), 33))


def test_runs_are_cut_at_the_end_of_the_slab() -> None:
    lent = Borrowed(at=32, base=100)
    assert cell_runs(10, None, 30, 5) == [(40, 45)]
    assert cell_runs(10, lent, 27, 5) == [(37, 42)]
    assert cell_runs(10, lent, 30, 5) == [(40, 42), (100, 103)]
    assert cell_runs(10, lent, 33, 2) == [(101, 103)]


@pytest.mark.parametrize("at", [30, 31, 33, 35])
def test_a_branch_in_borrowed_cells_says_what_it_says_in_the_slab(at: int) -> None:
    backbone = load_backbone(EMBEDDED, total_cells=200)
    expected = backbone.forward([Segment(0, 0, TRUNK, BRANCHES)]).rows
    lent = Borrowed(at, 150)
    apart = backbone.forward([Segment(60, 0, TRUNK, BRANCHES, borrowed=lent)]).rows
    assert torch.allclose(apart, expected, atol=1e-3)
    resumed = Branch((98,), 40, reused=3, reused_cell=33)
    again = backbone.forward([Segment(60, 30, (), (resumed,), borrowed=lent)]).rows
    assert torch.allclose(again[0], expected[1], atol=1e-3)


def test_borrowed_cells_overlap_no_other_segment() -> None:
    first = Segment(0, 0, TRUNK, BRANCHES, borrowed=Borrowed(30, 100))
    lay_out([first, Segment(30, 0, TRUNK)])
    with pytest.raises(ValueError, match="overlap"):
        lay_out([first, Segment(80, 0, TRUNK)])
    with pytest.raises(ValueError, match="overlap"):
        lay_out([first, Segment(200, 0, TRUNK, BRANCHES, borrowed=Borrowed(30, 105))])
