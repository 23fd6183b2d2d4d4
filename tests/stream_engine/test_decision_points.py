"""Which decision points are known to have been checked."""

from __future__ import annotations

from stream_engine.config import RiskSettings
from stream_engine.decision_points import MAX_POINTS, DecisionPoints


def test_the_last_ones_are_known() -> None:
    assert RiskSettings().horizon <= MAX_POINTS, "the detector's level is about so many checks"
    points = DecisionPoints([("A", 1)])
    for number in range(MAX_POINTS):
        assert ("A", 1) in points
        points.add(("B", number))
        points.add(("B", number))
    assert ("A", 1) not in points
    assert list(points) == [("B", number) for number in range(MAX_POINTS)]
