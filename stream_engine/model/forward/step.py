"""What one forward step computes, in ids and offsets only.

A step is a list of segments, one a session. A segment appends tokens at the live end of a slab and evaluates
branches (entries) on top of it, so a commit and all its pre-positions are one pass of the weights. Every number
here is decided by policy; tensors follow from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Branch:
    """An entry evaluated behind the live end; it sees the session, the append and itself, never another branch.

    tokens: the ids to compute now (at least one).
    cell: offset from the segment's base where the KV of `tokens` is written; at or behind the new live end.
    reused: number of leading entry tokens whose KV an earlier step left in scratch cells (Eq. 5, fall-through).
    reused_cell: offset from the base of the first of those cells; they are contiguous.
    sees: resident tokens that the branch sees, where that is an earlier boundary and not the live end: it is
        evaluated as it would have been when the session ended there.
    """

    tokens: tuple[int, ...]
    cell: int
    reused: int = 0
    reused_cell: int = 0
    sees: int | None = None


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Cells that a segment has besides its slab: offsets from `at` on lie in the cells from `base` on."""

    at: int
    base: int


def cell_runs(base: int, borrowed: Borrowed | None, start: int, count: int) -> list[tuple[int, int]]:
    """The contiguous runs of cells, first and last + 1, in which `count` cells from offset `start` on lie."""
    end = start + count
    if borrowed is None or end <= borrowed.at:
        return [(base + start, base + end)]
    shift = borrowed.base - borrowed.at
    if start >= borrowed.at:
        return [(start + shift, end + shift)]
    return [(base + start, base + borrowed.at), (borrowed.base, end + shift)]


@dataclass(frozen=True, slots=True)
class Segment:
    """One session's part of a step.

    base: first cell of the session's slab.
    length: resident tokens n_s before the append; they fill the cells [base, base + length).
    append: ids that become durable; written at base + length.
    branches: entries; their positions start at n_s + len(append) (+ reused), or at what they see.
    position: position id of the slab's first token.
    append_logits: also return the logits after the last appended token.
    borrowed: where the cells behind the slab's end are; None where all lie in the slab.

    Raises ValueError when cells would collide or a branch could not be exact.
    """

    base: int
    length: int
    append: tuple[int, ...] = ()
    branches: tuple[Branch, ...] = ()
    position: int = 0
    append_logits: bool = False
    borrowed: Borrowed | None = None

    def __post_init__(self) -> None:
        if self.base < 0 or self.length < 0 or self.position < 0:
            raise ValueError("base, length and position of a segment are not negative")
        if not self.append and not self.branches:
            raise ValueError("a segment computes at least one token")
        if self.append_logits and not self.append:
            raise ValueError("append_logits needs appended tokens: a resident token's logits are not kept")
        live = self.live_end
        written: list[tuple[int, int]] = []
        for branch in self.branches:
            if not branch.tokens:
                raise ValueError("a branch computes at least one token")
            if branch.cell < live:
                raise ValueError(f"branch cell {branch.cell} lies before the live end {live}")
            if branch.sees is not None:
                if not 0 <= branch.sees <= self.length:
                    raise ValueError(f"a branch sees up to {self.length} resident tokens, not {branch.sees}")
                if branch.reused:
                    raise ValueError("cells computed at the live end are not those of an earlier boundary")
            if branch.reused:
                if self.append:
                    raise ValueError("an append moves every branch: cells computed before it can't be reused")
                if branch.reused < 0 or branch.reused_cell < live:
                    raise ValueError(f"reused branch cells lie at or behind the live end {live}")
            written.append((branch.cell, branch.cell + len(branch.tokens)))
        _refuse_collisions(self.branches, written)

    @property
    def live_end(self) -> int:
        """Resident tokens after the append, n_s of Eq. 1."""
        return self.length + len(self.append)

    def trunk(self, branch: Branch) -> int:
        """Leading tokens of the slab that the branch stands on."""
        return self.live_end if branch.sees is None else branch.sees

    @property
    def extent(self) -> int:
        """Offset behind the last cell that this segment reads or writes."""
        end = self.live_end
        for branch in self.branches:
            end = max(end, branch.cell + len(branch.tokens))
            if branch.reused:
                end = max(end, branch.reused_cell + branch.reused)
        return end

    def runs(self, start: int, count: int) -> list[tuple[int, int]]:
        """As `cell_runs`."""
        return cell_runs(self.base, self.borrowed, start, count)

    def cells(self, start: int, count: int) -> list[int]:
        """Each of these cells."""
        return [cell for first, last in self.runs(start, count) for cell in range(first, last)]

    @property
    def size(self) -> int:
        """Tokens to compute."""
        return len(self.append) + sum(len(branch.tokens) for branch in self.branches)

    @property
    def last_position(self) -> int:
        """Highest position id that this segment computes."""
        ends = (self.trunk(branch) + branch.reused + len(branch.tokens) for branch in self.branches)
        return self.position + max([self.live_end, *ends]) - 1


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Where a segment's logits are: row indices into the step's logits."""

    append: int | None
    branches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepLayout:
    """All segments of a step as one row of T tokens.

    tokens, positions, cells: int64 [T]; ids, position ids and absolute cells.
    keep: int64 [n]; the token indices whose logits are wanted.
    spans: per segment, its [first, last) token indices.
    rows: per segment, where its logits are among the n kept ones.
    """

    segments: tuple[Segment, ...]
    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    cells: NDArray[np.int64]
    keep: NDArray[np.int64]
    spans: tuple[tuple[int, int], ...]
    rows: tuple[SegmentRows, ...]


def lay_out(segments: Sequence[Segment]) -> StepLayout:
    """Pack the segments into one row, each as its append followed by its branches.

    Raises ValueError when there is nothing to compute or two segments touch the same cells.
    """
    if not segments:
        raise ValueError("a step has at least one segment")
    if len(segments) > 1:
        runs = sorted(run for segment in segments for run in segment.runs(0, segment.extent))
        for lower, upper in pairwise(runs):
            if lower[1] > upper[0]:
                raise ValueError(f"segments at cells {lower[0]} and {upper[0]} overlap")
    tokens: list[int] = []
    positions: list[int] = []
    cells: list[int] = []
    keep: list[int] = []
    spans: list[tuple[int, int]] = []
    rows: list[SegmentRows] = []

    def place(segment: Segment, ids: tuple[int, ...], position: int, offset: int) -> None:
        tokens.extend(ids)
        positions.extend(range(position, position + len(ids)))
        cells.extend(segment.cells(offset, len(ids)))

    for segment in segments:
        first = len(tokens)
        append_row: int | None = None
        place(segment, segment.append, segment.position + segment.length, segment.length)
        if segment.append_logits:
            append_row = len(keep)
            keep.append(len(tokens) - 1)
        branch_rows: list[int] = []
        for branch in segment.branches:
            start = segment.position + segment.trunk(branch) + branch.reused
            place(segment, branch.tokens, start, branch.cell)
            branch_rows.append(len(keep))
            keep.append(len(tokens) - 1)
        spans.append((first, len(tokens)))
        rows.append(SegmentRows(append_row, tuple(branch_rows)))
    return StepLayout(
        segments=tuple(segments),
        tokens=np.array(tokens, dtype=np.int64),
        positions=np.array(positions, dtype=np.int64),
        cells=np.array(cells, dtype=np.int64),
        keep=np.array(keep, dtype=np.int64),
        spans=tuple(spans),
        rows=tuple(rows),
    )


def _refuse_collisions(branches: tuple[Branch, ...], written: list[tuple[int, int]]) -> None:
    ordered = sorted(written)
    for (_, end), (start, _) in pairwise(ordered):
        if start < end:
            raise ValueError("two branches write the same cells")
    for branch in branches:
        if branch.reused:
            first, last = branch.reused_cell, branch.reused_cell + branch.reused
            if any(start < last and first < end for start, end in written):
                raise ValueError("a branch writes over cells that another one reuses")
