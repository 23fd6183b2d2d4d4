"""Simulated series, and pairs made by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from stream_engine.calibrate.pairs import SCHEMA
from stream_engine.data.series import Series, simulated_series

PAIR: dict[str, Any] = {
    "sample": "simulated", "series": "simulated", "instrument": "X", "window": 0, "fill": 32, "version": 1,
    "event_time": datetime(2026, 1, 2, tzinfo=UTC), "class": "trend", "question": "Trend?", "exact": False,
    "fast_answer": "up", "in_set": True, "gap": 3.0, "full_answer": "up", "full_gap": 3.0, "differs": False,
    "cause": None, "truth": "up", "right": True, "full_right": True,
}  # fmt: skip


@pytest.fixture
def make_pairs() -> Callable[..., pl.DataFrame]:
    """Rows that differ from a clean fast answer as each change says."""

    def make(*changes: dict[str, Any]) -> pl.DataFrame:
        return pl.DataFrame([PAIR | change for change in changes], schema=SCHEMA)

    return make


@pytest.fixture(scope="session")
def series() -> Series:
    """One simulated instrument as a recorded one: twelve windows and a bar between each."""
    (series,) = simulated_series(3, 1, 12 * 33 - 1)
    return Series("recorded", "XYZ", series.bars)
