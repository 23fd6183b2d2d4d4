"""The report's tables: every figure under its own heading, from counts that no two columns share."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from rich.table import Table

from stream_engine.calibrate.choose import Chosen
from stream_engine.calibrate.report import report
from stream_engine.calibrate.run import CalibrationRun
from stream_engine.calibrate.selection import Grid
from stream_engine.decision.calibration import ClassCalibration, MeasuredGate
from stream_engine.model.render.fast_set import SurfaceForm
from tests.support.calibrations import calibration

SIMULATED = MeasuredGate(
    sample="simulated",
    windows=900,
    fired=700,
    false_accepts=21,
    coverage=0.7778,
    rate=0.03,
    rate_low=0.0197,
    rate_high=0.0454,
    budget=0.0512,
    right=0.91,
)
RECORDED = MeasuredGate(
    sample="recorded",
    windows=400,
    fired=300,
    false_accepts=6,
    coverage=0.75,
    rate=0.02,
    rate_low=0.0092,
    rate_high=0.0429,
    budget=0.0601,
    right=0.88,
)
TREND = ClassCalibration(2.5, "by hand", True, (SIMULATED, RECORDED), smallest=1.5, provable=2.25)
VOLUME = ClassCalibration(0.5, "own distribution only", True)


def gaps(sample: str, **counts: int) -> list[dict[str, Any]]:
    """Pairs past a tau of 2.5: agreed and right, agreed and wrong, unsure, divergence; and held back."""
    kinds: dict[str, dict[str, Any]] = {
        "right": {"gap": 5.0},
        "wrong": {"gap": 4.0, "right": False},
        "unsure": {"gap": 3.0, "differs": True, "cause": "unsure", "right": False},
        "divergence": {"gap": 3.0, "differs": True, "cause": "divergence", "right": None},
        "held": {"gap": 2.5, "differs": True, "cause": "unsure", "right": False},
    }
    return [kinds[kind] | {"sample": sample} for kind, count in counts.items() for _ in range(count)]


@pytest.fixture
def outcome(make_pairs: Callable[..., pl.DataFrame]) -> CalibrationRun:
    pairs = make_pairs(
        *gaps("pilot", unsure=9, divergence=9),
        *gaps("simulated", right=10, wrong=2, unsure=1, divergence=5, held=2),
        *gaps("recorded", right=4, unsure=3, divergence=2, held=1),
        *(
            {"class": "volume", "sample": "simulated", "gap": gap, "right": gap > 1}
            for gap in (0.25, 1.0, 2.0, 3.0)
        ),
    )
    grid = Grid((1.0, 2.5), 2.5)
    chosen = {"trend": Chosen(TREND, grid, {"recorded": 0.0321}), "volume": Chosen(VOLUME, grid, {})}
    forms = {
        "trend": {"up": (SurfaceForm(7, "up"), SurfaceForm(8, " up")), "down": (SurfaceForm(9, "down"),)},
        "volume": {"rising": (SurfaceForm(10, "rising"),)},
    }
    made = calibration({"trend": TREND, "volume": VOLUME})
    return CalibrationRun(
        calibration=made, pairs=pairs, chosen=chosen, curve=pl.DataFrame(), generic="trend", forms=forms
    )


def table(outcome: CalibrationRun, title: str) -> tuple[str, list[dict[str, str]]]:
    """The title of the table that begins so, and its rows by heading."""
    found = next(part for part in report(outcome) if isinstance(part, Table) and str(part.title).startswith(title))
    cells = [[str(cell) for cell in column.cells] for column in found.columns]
    headings = [str(column.header) for column in found.columns]
    return str(found.title), [dict(zip(headings, row, strict=True)) for row in zip(*cells, strict=True)]


def test_the_gate_of_each_sample(outcome: CalibrationRun) -> None:
    title, rows = table(outcome, "trend")
    assert title == "trend, from the generic header: tau = 2.5"
    assert rows == [
        {
            "sample": "simulated",
            "windows": "900",
            "coverage": "0.7778",
            "differ": "21 of 700",
            "rate, 95 %": "0.0300\n0.0197-0.0454",
            "budget at 0.1": "0.0512",
        },
        {
            "sample": "recorded",
            "windows": "400",
            "coverage": "0.7500",
            "differ": "6 of 300",
            "rate, 95 %": "0.0200\n0.0092-0.0429",
            "budget at 0.1": "0.0601",
        },
    ]


def test_causes_are_of_false_accepts_past_tau_and_none_of_the_pilots(outcome: CalibrationRun) -> None:
    title, rows = table(outcome, "False accepts")
    assert "(its gap < 2)" in title
    assert rows == [
        {"sample": "simulated", "false accepts": "6", "unsure": "1", "divergence": "5"},
        {"sample": "recorded", "false accepts": "5", "unsure": "3", "divergence": "2"},
    ]


def test_accuracy_of_all_windows_of_those_past_tau_and_of_the_surest(outcome: CalibrationRun) -> None:
    """Right of judged: 10 of 15 (5 have no truth), past tau 10 of 13; the 19 largest gaps leave out one of the two
    that are held back."""
    _, rows = table(outcome, "Right against")
    assert [(row["class"], row["sample"], row["n"]) for row in rows] == [
        ("trend", "simulated", "20"),
        ("trend", "recorded", "10"),
        ("volume", "simulated", "4"),
        ("volume", "recorded", "0"),
    ]
    simulated, _, volume, nothing = rows
    assert {nothing[name] for name in ("all", "coverage", "past tau", "at 0.95")} == {"-"}
    assert (simulated["all"], simulated["coverage"], simulated["at 0.95"]) == ("0.6667", "0.9000", "0.7143")
    assert simulated["past tau"].startswith("0.7692\n")
    assert (volume["all"], volume["coverage"]) == ("0.5000", "0.7500")
    assert volume["past tau"].startswith("0.6667\n")


def test_the_fast_set_word_by_word(outcome: CalibrationRun) -> None:
    title, rows = table(outcome, "Fast-answer set")
    assert title == "Fast-answer set: 4 tokens"
    assert rows == [
        {"class": "trend", "word": "up", "tokens": "'up' (7), ' up' (8)"},
        {"class": "", "word": "down", "tokens": "'down' (9)"},
        {"class": "volume", "word": "rising", "tokens": "'rising' (10)"},
    ]


def test_what_is_promised(outcome: CalibrationRun) -> None:
    console = Console(file=io.StringIO(), width=1000)
    for part in report(outcome):
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert (
        "smallest tau with a measured rate <= 0.05: 1.5; smallest that is certified: 2.25. tau: by hand." in text
    )
    assert "exceeds 0.05 is at most 0.1." in text
    assert "Calibration error of confidence on recorded: 0.0321." in text
