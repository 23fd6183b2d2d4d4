"""The numeric truth of a window: the statistic that defines each class's right word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stream_engine.data.statistics import right_words
from stream_engine.model.frame import BarArrays
from stream_engine.model.profile import AnswerClass


def truths(classes: Sequence[AnswerClass], windows: Sequence[BarArrays]) -> list[dict[str, str]]:
    """The right word by class of each window of bars; a class that a window cannot have a truth of is left out."""
    if not windows:
        return []
    closes, volumes = (np.array([getattr(window, name) for window in windows]) for name in ("close", "volume"))
    return right_words(classes, closes, volumes)
