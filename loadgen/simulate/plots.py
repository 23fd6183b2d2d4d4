"""Figures 4a, 4b, 5, 6a and 6b in the manner of the paper, each as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from loadgen.simulate.costs import Costs
from loadgen.simulate.figures import Sheet

PARTS = {"restore_ms": "restore", "prefill_ms": "prefill", "decode_ms": "decode", "scan_ms": "scan"}


def save_plots(folder: Path, sheets: Mapping[str, Sheet], costs: Costs) -> list[Path]:
    """Ten files. The same data gives the same SVG, byte for byte."""
    drawings: dict[str, Callable[[Any, Mapping[str, Sheet], Costs], None]] = {
        "fig4a": _latency, "fig4b": _speedup, "fig5": _anatomy, "fig6a": _hit_rate, "fig6b": _effective,
    }  # fmt: skip
    written = []
    for name, draw in drawings.items():
        figure = Figure(figsize=(5.6, 4.0), layout="constrained")
        axes = figure.subplots()
        draw(axes, sheets, costs)
        axes.grid(alpha=0.25)
        axes.legend(fontsize="small")
        with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
            for kind, metadata in (("png", None), ("svg", {"Date": None})):
                figure.savefig(folder / f"{name}.{kind}", dpi=150, metadata=metadata)
                written.append(folder / f"{name}.{kind}")
    return written


def _latency(axes: Any, sheets: Mapping[str, Sheet], costs: Costs) -> None:
    of, points = sheets["fig4a"], sheets["fig4a-measured"]
    axes.plot(of.column("entry_tokens"), of.column("cold_ms"), label="L_cold (Eq. 2)")
    axes.plot(of.column("entry_tokens"), of.column("fast_ms"), label="L_fast (Eq. 3)")
    if points.rows:
        axes.plot(points.column("entry_tokens"), points.column("first_token_ms"), "ko", label="cold, measured")
    _mark_entry(axes, costs)
    axes.set(xlabel="entry length (tokens)", ylabel="first token (ms)", ylim=(0, None), title="Figure 4a")


def _speedup(axes: Any, sheets: Mapping[str, Sheet], costs: Costs) -> None:
    of = sheets["fig4b"]
    axes.plot(of.column("entry_tokens"), of.column("speedup"), label="S (Eq. 4)")
    _mark_entry(axes, costs)
    axes.set(xlabel="entry length (tokens)", ylabel="L_cold / L_fast", ylim=(0, None), title="Figure 4b")


def _mark_entry(axes: Any, costs: Costs) -> None:
    tokens = costs.entry_tokens
    axes.axvline(tokens, color="black", linewidth=0.8, linestyle="--", label=f"entry of {tokens} tokens")


def _anatomy(axes: Any, sheets: Mapping[str, Sheet], costs: Costs) -> None:
    of = sheets["fig5"]
    paths = [str(path).replace(", ", "\n") for path in of.column("path")]
    base = [0.0] * len(paths)
    for column, label in PARTS.items():
        heights = of.column(column)
        axes.bar(paths, heights, bottom=base, label=label)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    for at, total in enumerate(of.column("total_ms")):
        axes.annotate(f"{total:.3g}", (at, total), ha="center", va="bottom")
    room = 1.12 * max(of.column("total_ms"))  # for the numbers on the bars
    axes.set(ylabel="first token (ms)", ylim=(0, room), title=f"Figure 5: entry of {costs.entry_tokens} tokens")


def _hit_rate(axes: Any, sheets: Mapping[str, Sheet], costs: Costs) -> None:
    of, drawn, points = sheets["fig6a"], sheets["fig6-simulated"], sheets["fig6a-measured"]
    axes.plot(of.column("rho"), of.column("hit_rate"), label="h = rho/(1+rho) (Eq. 8)")
    axes.plot(of.column("rho"), of.column("wasted_rate"), label="w = 1 - h")
    _simulated(axes, drawn, "hit_rate", "C0o", "simulated")
    if points.rows:
        rates = points.column("hit_rate")
        below = [max(0.0, rate - low) for rate, low in zip(rates, points.column("low"), strict=True)]
        above = [max(0.0, high - rate) for rate, high in zip(rates, points.column("high"), strict=True)]
        style = {"fmt": "ks", "capsize": 3, "label": "measured, Wilson 95 %"}
        axes.errorbar(points.column("rho"), rates, (below, above), **style)
    axes.set(xscale="log", xlabel="rho = queries / updates", ylabel="share", ylim=(0, 1.02), title="Figure 6a")


def _effective(axes: Any, sheets: Mapping[str, Sheet], costs: Costs) -> None:
    of, drawn = sheets["fig6b"], sheets["fig6-simulated"]
    axes.plot(of.column("rho"), of.column("expected_ms"), label="E[L_pp] (Eq. 9)")
    axes.plot(of.column("rho"), of.column("cold_ms"), label="L_cold")
    axes.plot(of.column("rho"), of.column("served_ms"), "--", label="served (Eq. 10)")
    _simulated(axes, drawn, "expected_ms", "C0o", "simulated, over pre-positions")
    _simulated(axes, drawn, "query_ms", "C4^", "simulated, over queries")
    axes.set(xscale="log", xlabel="rho = queries / updates", ylabel="first token (ms)", ylim=(0, None))
    axes.set_title("Figure 6b")


def _simulated(axes: Any, sheet: Sheet, column: str, marker: str, label: str) -> None:
    """Points with two standard errors; those that counted nothing, or have no error, are left out or bare."""
    rows = zip(sheet.column("rho"), sheet.column(column), sheet.column(f"{column}_error"), strict=True)
    points = [(rho, value, 2 * (error or 0.0)) for rho, value, error in rows if value is not None]
    if points:
        rhos, values, errors = zip(*points, strict=True)
        axes.errorbar(rhos, values, errors, fmt=marker, capsize=3, label=label)
