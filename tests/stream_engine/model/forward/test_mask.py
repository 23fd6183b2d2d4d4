"""The tree mask against the definition of what a token sees, written out cell by cell."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_engine.model.forward.mask import first_visible, tree_mask
from stream_engine.model.forward.step import Branch, Segment


def visible_cells(segment: Segment, window: int | None) -> list[set[int]]:
    """Per computed token, the offsets it sees: every cell of its own path that is not too far behind it."""
    trunk = list(range(segment.live_end))
    paths = [trunk[: segment.length + index + 1] for index in range(len(segment.append))]
    for branch in segment.branches:
        seen = trunk if branch.sees is None else trunk[: branch.sees]
        path = seen + list(range(branch.reused_cell, branch.reused_cell + branch.reused))
        own = list(range(branch.cell, branch.cell + len(branch.tokens)))
        paths += [path + own[: index + 1] for index in range(len(own))]
    return [set(path if window is None else path[-window:]) for path in paths]


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    length = draw(st.integers(0, 12))
    resume = draw(st.booleans())
    append = () if resume else tuple(range(draw(st.integers(1, 5))))
    cell = length + len(append)
    reused, reused_cell = (draw(st.integers(1, 6)), cell + draw(st.integers(0, 2))) if resume else (0, 0)
    cell = max(cell, reused_cell + reused)
    branches: list[Branch] = []
    for index in range(draw(st.integers(1 if resume else 0, 3))):
        cell += draw(st.integers(0, 2))
        count = draw(st.integers(1, 5))
        again = resume and index == 0
        sees = None if again else draw(st.one_of(st.none(), st.integers(0, length)))
        branches.append(
            Branch(tuple(range(count)), cell, reused if again else 0, reused_cell if again else 0, sees)
        )
        cell += count
    order = draw(st.permutations(branches))
    return Segment(base=0, length=length, append=append, branches=tuple(order))


@given(segments(), st.one_of(st.none(), st.integers(1, 9)))
def test_each_token_sees_its_own_path_and_nothing_else(segment: Segment, window: int | None) -> None:
    mask = tree_mask(segment, window)
    low = first_visible(segment, window)
    assert mask.shape == (segment.size, segment.extent - low)
    assert set(np.unique(mask)) <= {np.float32(0.0), np.float32(-np.inf)}
    seen = [{int(cell) + low for cell in np.flatnonzero(row == 0.0)} for row in mask]
    assert seen == visible_cells(segment, window)
