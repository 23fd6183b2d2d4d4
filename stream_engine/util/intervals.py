"""Interval of a measured share."""

from __future__ import annotations

import math


def wilson(hits: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson score interval of the share ``hits / trials``, at 95 % by default; (0, 1) without trials."""
    if not trials:
        return 0.0, 1.0
    share, spread = hits / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return centre - half, centre + half
