"""What the plots show: which column of the curve lies on which axis, and whose line is whose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from stream_engine.calibrate import plots
from stream_engine.decision.calibration import ClassCalibration
from tests.support.calibrations import calibration

CALIBRATION = calibration({"trend": ClassCalibration(2.25, "by hand", True)})


def point(**changes: Any) -> dict[str, Any]:
    base = {
        "class": "trend", "sample": "simulated", "tau": 1.0, "fired": 8, "coverage": 0.8, "coverage_low": 0.7,
        "coverage_high": 0.9, "rate": 0.3, "rate_low": 0.2, "rate_high": 0.4, "judged": 8, "right": 0.625,
        "right_low": 0.5, "right_high": 0.65,
    }  # fmt: skip
    return base | changes


CURVE = pl.DataFrame(
    [
        point(),
        point(tau=2.0, coverage=0.5, rate=0.1, right=0.75),
        point(tau=3.0, coverage=0.0, rate=0.0, fired=0, judged=0, right=None, right_low=0.0, right_high=1.0),
        point(sample="recorded", tau=1.5, coverage=0.625, rate=0.25, right=0.875),
        point(**{"class": "volume"}, tau=0.5, coverage=0.375, right=0.5625),
    ]
)


@pytest.fixture
def panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Axes of both figures, by the plot's file."""
    seen: dict[str, list[Any]] = {}
    finish = plots._finish

    def watched(figure: Figure, axes: Sequence[Any], path: Path) -> None:
        seen[path.name] = list(figure.axes)
        finish(figure, axes, path)

    monkeypatch.setattr(plots, "_finish", watched)
    written = plots.save_plots(tmp_path, CALIBRATION, CURVE, "trend")
    assert all(path.stat().st_size > 1_000 for path in written)
    return seen


def line(axes: Any, label: str) -> list[tuple[float, float]]:
    (found,) = [drawn_line for drawn_line in axes.lines if drawn_line.get_label() == label]
    return list(zip(np.asarray(found.get_xdata()).tolist(), np.asarray(found.get_ydata()).tolist(), strict=True))


def test_risk_over_coverage_where_anything_fired(panels: dict[str, list[Any]]) -> None:
    risk, _, _ = panels["risk-coverage.png"]
    assert (risk.get_xlabel(), risk.get_ylabel()) == ("coverage", "false-accept rate")
    assert line(risk, "simulated") == [(0.8, 0.3), (0.5, 0.1)]
    assert line(risk, "recorded") == [(0.625, 0.25)]
    assert {y for _, y in line(risk, "budget")} == {0.05}
    band = risk.collections[0].get_paths()[0].vertices
    assert {round(float(y), 6) for _, y in band} == {0.2, 0.4}


def test_coverage_and_risk_over_tau_with_the_chosen_one(panels: dict[str, list[Any]]) -> None:
    _, coverage, rate = panels["risk-coverage.png"]
    assert line(coverage, "simulated") == [(1.0, 0.8), (2.0, 0.5), (3.0, 0.0)]
    assert {x for x, _ in line(coverage, "tau = 2.25")} == {2.25}
    dashed = [drawn_line for drawn_line in rate.lines if drawn_line.get_linestyle() == "--"]
    assert [list(drawn_line.get_xdata()) for drawn_line in dashed] == [[1.0, 2.0], [1.5]]
    assert [list(drawn_line.get_ydata()) for drawn_line in dashed] == [[0.3, 0.1], [0.25]]


def test_wrong_answers_of_each_class_where_any_has_a_truth(panels: dict[str, list[Any]]) -> None:
    trend, volume = panels["accuracy.png"]
    assert (trend.get_title(), volume.get_title()) == ("trend", "volume")
    assert line(trend, "simulated") == [(0.8, 0.375), (0.5, 0.25)]
    assert line(trend, "recorded") == [(0.625, 0.125)]
    assert line(volume, "simulated") == [(0.375, 0.4375)]
