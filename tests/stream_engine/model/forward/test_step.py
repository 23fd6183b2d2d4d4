"""Segments refuse what could not be exact; the layout packs them into one row."""

from __future__ import annotations

import pytest

from stream_engine.model.forward.step import Branch, Segment, SegmentRows, lay_out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"length": 3}, "at least one token"),
        ({"length": -1, "append": (1,)}, "not negative"),
        ({"length": 3, "branches": (Branch((), 3),)}, "at least one token"),
        ({"length": 3, "append": (1,), "branches": (Branch((2,), 3),)}, "before the live end"),
        ({"length": 3, "append": (1,), "branches": (Branch((2,), 9, 1, 5),)}, "can't be reused"),
        ({"length": 3, "branches": (Branch((2,), 9, 1, 2),)}, "at or behind the live end"),
        ({"length": 3, "branches": (Branch((2, 2), 3), Branch((2,), 4))}, "write the same cells"),
        ({"length": 3, "branches": (Branch((2, 2), 3), Branch((2,), 9, 2, 4))}, "another one reuses"),
        ({"length": 3, "branches": (Branch((2,), 3),), "append_logits": True}, "append_logits"),
        ({"length": 3, "append": (1,), "branches": (Branch((2,), 4, sees=4),)}, "up to 3 resident"),
        ({"length": 3, "branches": (Branch((2,), 3, sees=-1),)}, "up to 3 resident"),
        ({"length": 3, "branches": (Branch((2,), 9, 1, 5, sees=2),)}, "an earlier boundary"),
    ],
)
def test_a_segment_that_could_not_be_exact_is_refused(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Segment(base=0, **arguments)  # type: ignore[arg-type]


def test_layout_of_two_sessions() -> None:
    first = Segment(
        base=100,
        length=10,
        append=(1, 2),
        branches=(Branch((3,), 15), Branch((4, 5), 12)),
        append_logits=True,
    )
    second = Segment(base=20, length=5, branches=(Branch((6,), 9, reused=2, reused_cell=6),), position=7)
    layout = lay_out([first, second])
    assert layout.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert layout.positions.tolist() == [10, 11, 12, 12, 13, 14]
    assert layout.cells.tolist() == [110, 111, 115, 112, 113, 29]
    assert layout.keep.tolist() == [1, 2, 4, 5]
    assert layout.spans == ((0, 5), (5, 6))
    assert layout.rows == (SegmentRows(0, (1, 2)), SegmentRows(None, (3,)))
    assert first.extent == 16
    assert second.last_position == 14


def test_a_branch_of_an_earlier_boundary_has_its_positions() -> None:
    segment = Segment(base=0, length=10, append=(1,), branches=(Branch((2, 3), 11, sees=4), Branch((4,), 13)))
    layout = lay_out([segment])
    assert layout.positions.tolist() == [10, 4, 5, 11]
    assert layout.cells.tolist() == [10, 11, 12, 13]
    assert segment.last_position == 11
    assert Segment(base=0, length=10, branches=(Branch((2, 3), 10, sees=4),)).last_position == 9


def test_segments_never_share_cells() -> None:
    with pytest.raises(ValueError, match="overlap"):
        lay_out([Segment(base=4, length=0, append=(1,)), Segment(base=0, length=4, append=(1,))])
    with pytest.raises(ValueError, match="at least one segment"):
        lay_out([])
