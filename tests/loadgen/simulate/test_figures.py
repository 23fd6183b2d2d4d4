"""The figures' data: the paper's numbers in them, files that read back, and plots that draw nothing else."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from loadgen.simulate import plots
from loadgen.simulate.costs import PAPER, Measured, MeasuredCold, MeasuredHits
from loadgen.simulate.figures import Sheet, sheets
from loadgen.simulate.runs import Runs, SimulationPlan, run
from loadgen.simulate.simulator import SimulatedBudget
from stream_engine.util.intervals import wilson

MEASURED = Measured(
    costs=PAPER,
    machine="m",
    hit_rates=(MeasuredHits(rho=1.0, prepositions=128, hits=60), MeasuredHits(rho=10.0, prepositions=8, hits=8)),
    cold=(MeasuredCold(entry_tokens=30, first_token_ms=66.0),),
)
PLAN = SimulationPlan(costs=PAPER, budget=SimulatedBudget(4096, 32, 1024), rhos=(0.5, 2.0), updates=400, repeats=8)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return run(PLAN, {})


@pytest.fixture(scope="module")
def drawn(runs: Runs) -> dict[str, Sheet]:
    return sheets(MEASURED, runs.sweep, 0)


def test_figure_4_passes_through_the_papers_entry(drawn: dict[str, Sheet]) -> None:
    a, b = drawn["fig4a"], drawn["fig4b"]
    at = a.column("entry_tokens").index(18)
    assert a.rows[at] == (18, pytest.approx(54.294), 0.664)
    assert b.rows[at] == (18, pytest.approx(81.768, abs=5e-4))
    assert set(a.column("fast_ms")) == {0.664}
    assert np.diff(a.column("cold_ms")) == pytest.approx(0.843)
    assert (np.diff(b.column("speedup")) > 0).all()


def test_the_bars_of_figure_5_sum_to_their_paths(drawn: dict[str, Sheet]) -> None:
    totals = dict(zip(drawn["fig5"].column("path"), drawn["fig5"].column("total_ms"), strict=True))
    assert totals == pytest.approx(
        {"cold": 54.294, "fall-through, delta 0": 53.59, "fall-through, delta L_entry": 68.764, "fast": 0.664}
    )
    for row in drawn["fig5"].rows:
        assert sum(row[1:-1]) == pytest.approx(row[-1])


def test_figure_6_is_monotone_between_its_bounds(drawn: dict[str, Sheet]) -> None:
    a, b = drawn["fig6a"], drawn["fig6b"]
    assert (np.diff(a.column("hit_rate")) > 0).all()
    assert np.add(a.column("hit_rate"), a.column("wasted_rate")) == pytest.approx(1.0)
    assert a.column("hit_rate")[a.column("rho").index(pytest.approx(1.0))] == pytest.approx(0.5)
    expected, cold, served = (np.array(b.column(name)) for name in ("expected_ms", "cold_ms", "served_ms"))
    assert (np.diff(expected) < 0).all()
    assert ((served < expected) & (expected < cold)).all()


def test_points_are_those_of_the_runs_and_of_the_file(drawn: dict[str, Sheet], runs: Runs) -> None:
    simulated = drawn["fig6-simulated"]
    assert simulated.column("rho") == [0.5, 2.0]
    assert simulated.column("hit_rate") == [row.outcome.hit_rate.value for row in runs.sweep]
    assert drawn["fig4a-measured"].rows == [(30, 66.0)]
    assert drawn["fig6a-measured"].rows[0] == (1.0, 128, 60 / 128, *wilson(60, 128))


def test_a_saved_sheet_reads_back(drawn: dict[str, Sheet], tmp_path: Path) -> None:
    for sheet in drawn.values():
        with sheet.save(tmp_path).open(newline="") as file:
            header, *rows = csv.reader(file)
        assert tuple(header) == sheet.columns
        assert rows == [[str(value) for value in row] for row in sheet.rows]
    with Sheet("s", ("a", "b"), [(None, 1)]).save(tmp_path).open() as file:
        assert file.read() == "a,b\n,1\n"


@pytest.fixture(scope="module")
def axes(drawn: dict[str, Sheet], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The axes of each figure, by its name."""
    seen: dict[str, Any] = {}
    save = Figure.savefig

    def watched(figure: Figure, path: Path, **options: Any) -> None:
        seen[path.stem] = figure.axes[0]
        save(figure, path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", watched)
        written = plots.save_plots(tmp_path_factory.mktemp("plots"), drawn, PAPER)
    assert sorted(path.name for path in written) == sorted(
        f"{name}.{kind}" for name in ("fig4a", "fig4b", "fig5", "fig6a", "fig6b") for kind in ("png", "svg")
    )
    for path in written:
        assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    return seen


def line(axes: Any, label: str) -> tuple[list[float], list[float]]:
    for drawn in axes.lines:
        if drawn.get_label() == label:
            return list(drawn.get_xdata()), list(drawn.get_ydata())
    (found,) = [container for container in axes.containers if container.get_label() == label]
    return list(found[0].get_xdata()), list(found[0].get_ydata())


@pytest.mark.parametrize(
    ("figure", "label", "sheet", "x", "y"),
    [
        ("fig4a", "L_cold (Eq. 2)", "fig4a", "entry_tokens", "cold_ms"),
        ("fig4a", "L_fast (Eq. 3)", "fig4a", "entry_tokens", "fast_ms"),
        ("fig4a", "cold, measured", "fig4a-measured", "entry_tokens", "first_token_ms"),
        ("fig4b", "S (Eq. 4)", "fig4b", "entry_tokens", "speedup"),
        ("fig6a", "h = rho/(1+rho) (Eq. 8)", "fig6a", "rho", "hit_rate"),
        ("fig6a", "w = 1 - h", "fig6a", "rho", "wasted_rate"),
        ("fig6a", "simulated", "fig6-simulated", "rho", "hit_rate"),
        ("fig6a", "measured, Wilson 95 %", "fig6a-measured", "rho", "hit_rate"),
        ("fig6b", "E[L_pp] (Eq. 9)", "fig6b", "rho", "expected_ms"),
        ("fig6b", "L_cold", "fig6b", "rho", "cold_ms"),
        ("fig6b", "served (Eq. 10)", "fig6b", "rho", "served_ms"),
        ("fig6b", "simulated, over pre-positions", "fig6-simulated", "rho", "expected_ms"),
        ("fig6b", "simulated, over queries", "fig6-simulated", "rho", "query_ms"),
    ],
)
def test_a_line_is_its_columns(
    axes: dict[str, Any], drawn: dict[str, Sheet], figure: str, label: str, sheet: str, x: str, y: str
) -> None:
    assert line(axes[figure], label) == (drawn[sheet].column(x), drawn[sheet].column(y))


def test_bars_stand_on_each_other(axes: dict[str, Any], drawn: dict[str, Sheet]) -> None:
    tops = [0.0] * 4
    for patch in axes["fig5"].patches:
        at = round(patch.get_x() + patch.get_width() / 2)
        assert patch.get_y() == pytest.approx(tops[at])
        tops[at] += patch.get_height()
    assert tops == pytest.approx(drawn["fig5"].column("total_ms"))


def test_an_svg_is_the_same_each_time(drawn: dict[str, Sheet], tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        plots.save_plots(folder, drawn, PAPER)
    assert (folders[0] / "fig6a.svg").read_bytes() == (folders[1] / "fig6a.svg").read_bytes()
