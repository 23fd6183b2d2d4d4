"""The labels: documented statistics of the last W closes, as plain price differences.

Let `x_1 .. x_W` be the closes of a window and `s` the sample standard deviation (n - 1) of its W - 1 one-bar
differences. Differences, not logarithms, so that zero and negative prices work. All functions take closes of
shape [..., W] and return arrays of shape [...]; `s = 0` gives a statistic of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TREND_THRESHOLD = 0.5
MOMENTUM_THRESHOLD = 0.5
THIRD = 1.0 / 3.0


@dataclass(frozen=True, slots=True)
class Labels:
    """Index of the right answer word in its class, and the statistic's distance from its nearest threshold."""

    index: Ints
    margin: Floats


def _divided(top: Floats, bottom: Floats, otherwise: float) -> Floats:
    """Quotient where the divisor is positive, else a constant."""
    out: Floats = np.divide(top, bottom, out=np.full_like(bottom, otherwise), where=bottom > 0)
    return out


def _scaled(change: Floats, deviation: Floats, steps: int) -> Floats:
    scale = deviation * np.sqrt(steps)
    return _divided(change, scale, 0.0)


def _deviation(closes: Floats) -> Floats:
    differences = np.diff(closes, axis=-1)
    spread = np.std(differences, axis=-1, ddof=1)
    # A straight line leaves only rounding noise in its differences: that is not a deviation to divide by.
    noise = 1e-9 * np.max(np.abs(differences), axis=-1)
    return np.asarray(np.where(spread > noise, spread, 0.0), dtype=np.float64)


def trend_z(closes: Floats) -> Floats:
    """`z = (x_W - x_1) / (s sqrt(W - 1))`: the window's change in standard deviations of a random walk."""
    return _scaled(closes[..., -1] - closes[..., 0], _deviation(closes), closes.shape[-1] - 1)


def momentum_m(closes: Floats) -> Floats:
    """`m = (z_late - z_early) sign(x_W - x_1)` over the halves `x_1..x_h` and `x_{W-h+1}..x_W`, `h = W // 2`.

    `z_early = (x_h - x_1) / (s sqrt(h - 1))`, `z_late = (x_W - x_{W-h+1}) / (s sqrt(h - 1))`, with the `s` of
    the whole window.
    """
    half = closes.shape[-1] // 2
    early, late = closes[..., :half], closes[..., -half:]
    turn = (late[..., -1] - late[..., 0]) - (early[..., -1] - early[..., 0])
    return _scaled(turn * np.sign(closes[..., -1] - closes[..., 0]), _deviation(closes), half - 1)


def position_share(closes: Floats) -> Floats:
    """`(x_W - min x) / (max x - min x)`: where the last close lies in the window's range; 0.5 for no range."""
    low, high = closes.min(axis=-1), closes.max(axis=-1)
    span = high - low
    return _divided(closes[..., -1] - low, span, 0.5)


def trend(closes: Floats) -> Labels:
    """up (0): z > 0.5; down (1): z < -0.5; flat (2): else."""
    z = trend_z(closes)
    index = np.where(z > TREND_THRESHOLD, 0, np.where(z < -TREND_THRESHOLD, 1, 2))
    return Labels(index, np.abs(np.abs(z) - TREND_THRESHOLD))


def position(closes: Floats) -> Labels:
    """high (0): share > 2/3; middle (1): else; low (2): share < 1/3."""
    share = position_share(closes)
    index = np.where(share > 1.0 - THIRD, 0, np.where(share < THIRD, 2, 1))
    return Labels(index, np.minimum(np.abs(share - THIRD), np.abs(share - (1.0 - THIRD))))


def momentum(closes: Floats) -> Labels:
    """accelerating (0): m > 0.5; fading (1): m < -0.5; steady (2): else."""
    m = momentum_m(closes)
    index = np.where(m > MOMENTUM_THRESHOLD, 0, np.where(m < -MOMENTUM_THRESHOLD, 1, 2))
    return Labels(index, np.abs(np.abs(m) - MOMENTUM_THRESHOLD))


STATISTICS: dict[str, Callable[[Floats], Labels]] = {"trend": trend, "position": position, "momentum": momentum}
"""Class name -> label function; the words' order is that of the profile's class."""
