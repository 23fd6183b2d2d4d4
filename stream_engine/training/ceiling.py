"""What the rendering still tells: closes and volumes read back from a region's tokens.

A statistic of these, against that of the bars themselves, is the ceiling of any model that sees only the tokens.
"""

from __future__ import annotations

import numpy as np

from stream_engine.model.frame import (
    LEVELS_A_UNIT,
    MOVE_EDGES,
    NO_MOVE,
    VOLUME_EDGES,
    BarArrays,
    Floats,
    RegionFrame,
)

# The middle of each bucket; the outermost ones have an edge on one side only.
_SIZES: Floats = np.array(
    [0.0, MOVE_EDGES[0] / 2, *((MOVE_EDGES[1:] + MOVE_EDGES[:-1]) / 2), MOVE_EDGES[-1]], dtype=np.float64
)
_AMOUNTS: Floats = np.array(
    [0.0, VOLUME_EDGES[0] / 2, *np.sqrt(VOLUME_EDGES[1:] * VOLUME_EDGES[:-1]), VOLUME_EDGES[-1]], dtype=np.float64
)


def read_back(frame: RegionFrame, bars: BarArrays) -> tuple[Floats, Floats]:
    """(closes, volumes) [n] of a region as its tokens show them, in units of the frame.

    Each move has its bucket's middle; a close is the one before it plus the move, kept within its level's cell.
    """
    levels = frame.levels(bars.close) / LEVELS_A_UNIT
    buckets = frame.moves(bars.close, None)
    moves = np.sign(buckets) * _SIZES[np.where(buckets == NO_MOVE, 0, np.abs(buckets))]
    reach = 0.5 / LEVELS_A_UNIT
    closes = levels.copy()
    for at in range(1, len(closes)):
        closes[at] = np.clip(closes[at - 1] + moves[at], levels[at] - reach, levels[at] + reach)
    return closes, _AMOUNTS[frame.volumes(bars.volume)]
