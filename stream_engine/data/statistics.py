"""The labels: documented statistics of a window of W bars, as polars expressions over its closes and volumes.

Let `x_1 .. x_W` be the closes of a window, `s` the sample standard deviation (n - 1) of its W - 1 one-bar
differences, `h = W // 2` and `q = W // 4`. Differences, not logarithms, so that zero and negative prices work.

| class | statistic | words |
|---|---|---|
| trend | `z = (x_W - x_1) / (s sqrt(W - 1))` | up: z > 0.5; down: z < -0.5; else flat |
| position | `p = (x_W - min x) / (max x - min x)` | high: p > 2/3; low: p < 1/3; else middle |
| momentum | `m = (z_late - z_early) sign(x_W - x_1)` | accelerating: m > 0.5; fading: m < -0.5; else steady |
| volatility | `v = log2(s_late / s_early)` | rising: v > 0.4; falling: v < -0.4; else steady |
| last_move | `r = (x_W - x_{W-1}) / s` | up: r > 0.25; down: r < -0.25; else unchanged |
| volume | `u = log2(V_late / V_early)` | rising: u > 0.3; falling: u < -0.3; else steady |

`z_early = (x_h - x_1) / (s sqrt(h - 1))` and `z_late = (x_W - x_{W-h+1}) / (s sqrt(h - 1))`, both with the `s` of
the whole window. `s_early` is the sample standard deviation of the differences inside `x_1 .. x_{h+1}`, `s_late`
that of the others. `V_late` is the mean volume of the last q bars, `V_early` that of the W - q before.

Nothing to divide by: `s = 0` makes z, m and r zero, and an empty range makes p one half. Where only one half
moves, v is infinite towards it, and where neither does it is 0. A bar without volume counts as zero volume; u is
infinite where only one of the means is zero, and 0 where both are: a window without any volume is steady.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stream_engine.model.profile import AnswerClass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CLOSE, _VOLUME = pl.col("close"), pl.col("volume")
_MOVES = _CLOSE.diff().slice(1)
# Coarse ticks put windows on a threshold: rounding noise is not to decide, they lie between.
_TIE = 1e-9
# A straight line leaves only rounding noise in its differences: that is not a deviation to divide by.
_NOISE = 1e-9 * _MOVES.abs().max()


@dataclass(frozen=True, slots=True)
class Statistic:
    """One class: its statistic over the bars of a window, two thresholds, the words above, below, between."""

    value: pl.Expr
    low: float
    high: float
    above: int
    below: int
    between: int


@dataclass(frozen=True, slots=True)
class Labels:
    """Index of the right answer word in its class, and the statistic's distance from its nearest threshold."""

    index: Ints
    margin: Floats


def _deviation(moves: pl.Expr) -> pl.Expr:
    spread = moves.std()
    return pl.when(spread > _NOISE).then(spread).otherwise(0.0)


def _divided(top: pl.Expr, bottom: pl.Expr, otherwise: float) -> pl.Expr:
    return pl.when(bottom > 0).then(top / bottom).otherwise(otherwise)


def _log_ratio(late: pl.Expr, early: pl.Expr) -> pl.Expr:
    """log2 of a ratio of numbers >= 0: +-inf where one of them is zero, 0 where both are."""
    return pl.when((late > 0) | (early > 0)).then((late / early).log(2.0)).otherwise(0.0)


def statistics(window: int) -> dict[str, Statistic]:
    """The statistic of each class over a window of this many bars, in the order of the words above.

    Each `value` aggregates the columns `close` and `volume` (float64, oldest bar first, no nulls; nan or 0 =
    no volume) of one window: use it in `select`, `group_by(...).agg` or `rolling(...).agg`.
    """
    half, quarter = window // 2, window // 4
    change = _CLOSE.last() - _CLOSE.first()
    deviation = _deviation(_MOVES)
    late = _CLOSE.last() - _CLOSE.get(window - half)
    early = _CLOSE.get(half - 1) - _CLOSE.first()
    range_ = _CLOSE.max() - _CLOSE.min()
    traded = _VOLUME.fill_nan(0.0)
    return {
        "trend": Statistic(_divided(change, deviation * (window - 1) ** 0.5, 0.0), -0.5, 0.5, 0, 1, 2),
        "position": Statistic(_divided(_CLOSE.last() - _CLOSE.min(), range_, 0.5), 1 / 3, 2 / 3, 0, 2, 1),
        "momentum": Statistic(
            _divided((late - early) * change.sign(), deviation * (half - 1) ** 0.5, 0.0), -0.5, 0.5, 0, 1, 2
        ),
        "volatility": Statistic(
            _log_ratio(_deviation(_MOVES.tail(window - 1 - half)), _deviation(_MOVES.head(half))),
            -0.4, 0.4, 0, 1, 2,
        ),
        "last_move": Statistic(_divided(_MOVES.last(), deviation, 0.0), -0.25, 0.25, 0, 1, 2),
        "volume": Statistic(
            _log_ratio(traded.tail(quarter).mean(), traded.head(window - quarter).mean()), -0.3, 0.3, 0, 1, 2
        ),
    }  # fmt: skip


def values(close: Floats, volume: Floats, names: Sequence[str]) -> dict[str, Floats]:
    """The statistics `names` of windows: closes and volumes [..., W] to arrays [...]."""
    shape, window = close.shape[:-1], close.shape[-1]
    count = int(np.prod(shape))
    frame = pl.DataFrame(
        {
            "window": np.repeat(np.arange(count), window),
            "close": np.ascontiguousarray(close, dtype=np.float64).ravel(),
            "volume": np.ascontiguousarray(volume, dtype=np.float64).ravel(),
        }
    )
    formulas = statistics(window)
    table = frame.group_by("window", maintain_order=True).agg(**{name: formulas[name].value for name in names})
    return {name: table[name].to_numpy().reshape(shape) for name in names}


def labels(close: Floats, volume: Floats, names: Sequence[str]) -> dict[str, Labels]:
    """Right words of the classes `names` for windows: closes and volumes [..., W] to labels [...]."""
    found = {}
    for name, value in values(close, volume, names).items():
        statistic = statistics(close.shape[-1])[name]
        index = np.where(
            value > statistic.high + _TIE,
            statistic.above,
            np.where(value < statistic.low - _TIE, statistic.below, statistic.between),
        )
        found[name] = Labels(index, np.minimum(np.abs(value - statistic.low), np.abs(value - statistic.high)))
    return found


def right_words(classes: Sequence[AnswerClass], close: Floats, volume: Floats) -> list[dict[str, str]]:
    """The right word of each class for each window: closes and volumes [n, W] to n mappings.

    A window without any volume has no right word of the class `volume`: its label is a convention, not an
    observation.
    """
    names = [answer_class.name for answer_class in classes]
    found = labels(close, volume, names)
    traded = [bool(np.any(row > 0)) for row in volume]
    return [
        {
            answer_class.name: answer_class.words[int(found[answer_class.name].index[at])]
            for answer_class in classes
            if answer_class.name != "volume" or traded[at]
        }
        for at in range(len(close))
    ]
