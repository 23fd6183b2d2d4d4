"""Risk-coverage plots in the manner of the paper's Figure 7, and accuracy against the numeric truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stream_engine.decision.calibration import Calibration

RISK_PLOT, ACCURACY_PLOT = "risk-coverage.png", "accuracy.png"


def save_plots(folder: Path, calibration: Calibration, curve: pl.DataFrame, generic: str) -> list[Path]:
    """Both plots as PNG; the data of both is ``curve``."""
    risk, accuracy = folder / RISK_PLOT, folder / ACCURACY_PLOT
    _plot_risk(risk, calibration, curve.filter(pl.col("class") == generic), generic)
    _plot_accuracy(accuracy, curve)
    return [risk, accuracy]


def _plot_risk(path: Path, calibration: Calibration, curve: pl.DataFrame, generic: str) -> None:
    """(a) false-accept rate over coverage, (b) both over tau, with 95 % Wilson bands, budget and tau."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    risk, coverage = figure.subplots(1, 2)
    rate = coverage.twinx()
    tau, top = calibration.classes[generic].tau, _top(curve["rate"], 3 * calibration.r_max)
    for colour, sample, part in _samples(curve):
        served = part.filter(pl.col("fired") > 0)
        risk.plot(served["coverage"], served["rate"], color=colour, marker=".", label=sample)
        risk.fill_between(served["coverage"], served["rate_low"], served["rate_high"], color=colour, alpha=0.12)
        coverage.plot(part["tau"], part["coverage"], color=colour, label=sample)
        coverage.fill_between(part["tau"], part["coverage_low"], part["coverage_high"], color=colour, alpha=0.12)
        rate.plot(served["tau"], served["rate"], color=colour, linestyle="--")
    budget = {"color": "black", "linewidth": 0.8, "linestyle": ":"}
    risk.axhline(calibration.r_max, label="budget", **budget)
    rate.axhline(calibration.r_max, **budget)
    risk.set(xlabel="coverage", ylabel="false-accept rate", ylim=(0, top), title=f"(a) {generic}")
    coverage.axvline(tau, color="black", linewidth=0.8, label=f"tau = {tau:g}")
    coverage.set(xlabel="tau (logits)", ylabel="coverage", ylim=(0, 1.02), title="(b) coverage and, dashed, rate")
    rate.set(ylabel="false-accept rate", ylim=(0, top))
    _finish(figure, (risk, coverage), path)


def _plot_accuracy(path: Path, curve: pl.DataFrame) -> None:
    """Share of fired answers that are wrong against the truth, over coverage, one panel a class."""
    names: list[str] = curve["class"].unique(maintain_order=True).to_list()
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    panels: list[Any] = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for panel, name in zip(panels, names, strict=False):
        part_of = curve.filter(pl.col("class") == name)
        for colour, sample, part in _samples(part_of):
            judged = part.filter(pl.col("judged") > 0)
            panel.plot(judged["coverage"], 1 - judged["right"], color=colour, marker=".", label=sample)
            panel.fill_between(
                judged["coverage"], 1 - judged["right_high"], 1 - judged["right_low"], color=colour, alpha=0.12
            )
        top = _top(1 - part_of["right"].drop_nulls(), 0.05)
        panel.set(xlabel="coverage", ylabel="wrong against the truth", ylim=(0, top), title=name)
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    _finish(figure, panels[: len(names)], path)


def _top(shares: pl.Series, least: float) -> float:
    """Upper end of an axis: the intervals where little fires would squeeze what matters into a line."""
    return max(least, 1.4 * (max(shares, default=0.0)))


def _samples(curve: pl.DataFrame) -> list[tuple[str, str, pl.DataFrame]]:
    names = curve["sample"].unique(maintain_order=True).to_list()
    return [(f"C{at}", name, curve.filter(pl.col("sample") == name)) for at, name in enumerate(names)]


def _finish(figure: Figure, panels: Sequence[Any], path: Path) -> None:
    for panel in panels:
        panel.grid(alpha=0.25)
        panel.legend(fontsize="small")
    FigureCanvasAgg(figure).print_png(path)
