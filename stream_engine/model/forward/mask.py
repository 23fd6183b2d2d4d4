"""The tree mask: which cells each token of a segment sees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_engine.model.forward.step import Segment

Mask = NDArray[np.float32]

_HIDDEN = np.float32(-np.inf)


def first_visible(segment: Segment, window: int | None) -> int:
    """Offset of the first cell that any token of the segment can see in a layer of this window."""
    if window is None:
        return 0
    first = min((segment.trunk(branch) for branch in segment.branches), default=segment.length)
    return max(0, min(first, segment.length) - window + 1)


def tree_mask(segment: Segment, window: int | None) -> Mask:
    """Additive mask [size, extent - first_visible]: 0 where a token sees a cell, -inf elsewhere.

    Append tokens are causal over the resident cells and the append. A branch sees the resident cells, the append,
    its reused cells and itself, causally; one that `sees` an earlier boundary sees the resident cells up to it
    only. In a sliding-window layer a key is visible iff
    `query position - key position < window`: distance along the branch's own path, not between cells.
    """
    low = first_visible(segment, window)
    mask = np.full((segment.size, segment.extent - low), _HIDDEN, dtype=np.float32)
    live = segment.live_end
    row = len(segment.append)
    if row:
        _open(mask[:row, : live - low], segment.length, low, window)
    for branch in segment.branches:
        count = len(branch.tokens)
        rows = mask[row : row + count]
        trunk = segment.trunk(branch)
        start = trunk + branch.reused
        _open(rows[:, : trunk - low], start, low, window)
        if branch.reused:
            column = branch.reused_cell - low
            _open(rows[:, column : column + branch.reused], start, trunk, window)
        column = branch.cell - low
        _open(rows[:, column : column + count], start, start, window)
        row += count
    return mask


def _open(block: Mask, query: int, key: int, window: int | None) -> None:
    """Open a block whose rows start at position `query` and whose columns start at position `key`."""
    rows, columns = block.shape
    causal = key + columns - 1 <= query
    near = window is None or query + rows - 1 - key < window
    if causal and near:
        block[:] = 0.0
        return
    distance = np.arange(query, query + rows)[:, None] - np.arange(key, key + columns)
    visible = distance >= 0
    if window is not None:
        visible &= distance < window
    block[visible] = 0.0
