"""The numeric truth of a window: the statistic that defines each class's right word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stream_engine.model.frame import BarArrays
from stream_engine.model.profile import AnswerClass
from stream_engine.training.statistics import STATISTICS


def truths(classes: Sequence[AnswerClass], windows: Sequence[BarArrays]) -> list[dict[str, str]]:
    """The right word by class of each window of bars; a class that a window cannot have a truth of is left out."""
    if not windows:
        return []
    closes = np.array([window.close for window in windows])
    found = {one.name: STATISTICS[one.name](closes).index for one in classes}
    return [{one.name: one.words[int(found[one.name][at])] for one in classes} for at in range(len(windows))]
