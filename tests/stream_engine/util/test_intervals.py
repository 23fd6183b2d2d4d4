"""The Wilson interval, by hand."""

from __future__ import annotations

import pytest

from stream_engine.util.intervals import wilson


def test_wilson_interval_by_hand() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(95, 100)
    assert (low, high) == (pytest.approx(0.8882, abs=1e-4), pytest.approx(0.9785, abs=1e-4))
    assert wilson(10, 10)[1] == pytest.approx(1.0)
