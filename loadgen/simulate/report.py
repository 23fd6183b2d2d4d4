"""What was computed and simulated, as tables and as CSV, with the paper's figures beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadgen.simulate.closed_form import (
    cold_ms,
    fall_ms,
    fast_ms,
    fits_idle,
    pays,
    preposition_ms,
    served_latency,
    speedup,
)
from loadgen.simulate.costs import PAPER, Costs, Measured
from loadgen.simulate.figures import Sheet
from loadgen.simulate.outcome import Estimate
from loadgen.simulate.runs import Run, Runs, SimulationPlan

PAPER_MEASURED = {"L_cold": "53.1", "L_fall, delta 0": "53.0", "L_fast": "1.01", "S": "> 50"}
"""First tokens of whole requests (HW-5, Table 1): the closed form leaves a request's fixed floor out."""

NOTES = """\
h: completed pre-positions that a query read before the next update. E[L_pp] is weighed as Eq. 9 weighs it, over
pre-positions: L_cold for one that nobody read. "all queries" is the mean over queries, which is lower: many read
one distribution. +- is two standard errors over sessions, "-" where there is one. Skipped: no room in the cell
budget. Overtaken: the next update came before the pre-position was ready. Load: the share of its time that the
accelerator works; queries do not wait for each other here, so near 1 the latencies are too low."""

RUN_COLUMNS = (
    "table", "arrivals", "sessions", "rho", "rho_realised", "updates", "skipped", "overtaken", "completed", "hits",
    "hit_rate", "hit_rate_error", "closed_hit_rate", "expected_ms", "expected_ms_error", "closed_ms", "queries",
    "fast", "fall", "cold", "query_ms", "query_ms_error", "load",
)  # fmt: skip


def show(console: Console, measured: Measured, plan: SimulationPlan, runs: Runs) -> None:
    """All tables, and what their columns mean."""
    console.print(_closed_form(measured.costs, plan.delta, measured.machine))
    for title, some in _titled(plan, runs):
        console.print(_table(title, some))
    console.print(NOTES, soft_wrap=True)


def runs_sheet(runs: Runs) -> Sheet:
    """Every number of the runs' tables."""
    tables = {"sweep": runs.sweep, "shapes": runs.shapes, "crowds": runs.crowds, "recorded": runs.recorded}
    return Sheet("runs", RUN_COLUMNS, [_row(name, run) for name, some in tables.items() for run in some])


def save_text(console: Console, folder: Path) -> None:
    (folder / "report.txt").write_text(console.export_text(), encoding="utf-8")


def _closed_form(costs: Costs, delta: int, machine: str) -> Table:
    table = Table(title=f"Closed form: {machine or 'the paper’s constants'}")
    for name in ("", "equation", "here", "paper’s constants", "paper, measured"):
        table.add_column(name, justify="left" if name in ("", "equation") else "right")
    paper = dict(_lines(PAPER, min(delta, PAPER.entry_tokens)))
    for (name, equation), value in _lines(costs, delta):
        table.add_row(name, equation, value, paper.get((name, equation), ""), PAPER_MEASURED.get(name, ""))
    return table


def _lines(costs: Costs, delta: int) -> Iterator[tuple[tuple[str, str], str]]:
    entry = costs.entry_tokens
    fast, cold = fast_ms(costs), cold_ms(costs, entry)
    served = served_latency(costs.gate_fires, fast, fall_ms(costs, entry, delta))
    yield ("entry", ""), f"{entry} tokens"
    yield ("L_cold", "Eq. 2"), f"{cold:.3f} ms"
    yield ("L_fast", "Eq. 3"), f"{fast:.3f} ms"
    yield ("S", "Eq. 4"), f"{speedup(costs, entry):.2f}"
    yield ("L_fall, delta 0", "Eq. 5"), f"{fall_ms(costs, entry, 0):.3f} ms"
    yield ("L_fall, delta L_entry", "Eq. 5"), f"{fall_ms(costs, entry, entry):.3f} ms"
    yield ("T_pp", "Eq. 6"), f"{preposition_ms(costs, entry):.3f} ms"
    yield ("free in a window of 1 s", "Eq. 7"), _yes(fits_idle(costs, entry, 1e3))
    yield ("served, given a hit", "Eq. 10"), f"{served:.3f} ms"
    yield ("lowers the expected latency", "Eq. 10"), _yes(pays(costs, delta))


def _titled(plan: SimulationPlan, runs: Runs) -> Iterator[tuple[str, Sequence[Run]]]:
    yield f"One session, {plan.updates} updates", runs.sweep
    yield f"One session, other arrivals, rho = {plan.rho:g}", runs.shapes
    budget = plan.budget
    grown = f"each growing to {budget.region_tokens} by {budget.update_tokens} an update"
    yield f"Sessions on {budget.cells} cells, {grown}", runs.crowds
    if runs.recorded:
        yield "Recorded trace", runs.recorded


def _table(title: str, runs: Sequence[Run]) -> Table:
    table = Table(title=title)
    names = ("arrivals", "sessions", "rho", "skipped", "overtaken", "h", "closed form", "E[L_pp] ms", "Eq. 9",
             "all queries", "load")  # fmt: skip
    for name in names:
        table.add_column(name, justify="left" if name == "arrivals" else "right")
    for run in runs:
        outcome = run.outcome
        table.add_row(
            run.name,
            str(run.sessions),
            f"{run.rho:.3g}",
            _number(outcome.skipped.value, 3),
            f"{outcome.total('overtaken'):.0f}",
            _estimate(outcome.hit_rate, 4),
            _number(run.closed_hit_rate, 4),
            _estimate(outcome.expected_ms, 2),
            _number(run.closed_ms, 2),
            _number(outcome.query_ms.value, 2),
            f"{run.load:.3f}",
        )
    return table


def _row(table: str, run: Run) -> tuple[object, ...]:
    outcome = run.outcome
    hit, expected, query = outcome.hit_rate, outcome.expected_ms, outcome.query_ms
    counts = {
        name: int(outcome.total(name))
        for name in ("updates", "skipped", "overtaken", "completed", "hits", "queries", "fast", "fall", "cold")
    }
    values = counts | {
        "table": table, "arrivals": run.name, "sessions": run.sessions, "rho": run.rho,
        "rho_realised": outcome.rho,
        "hit_rate": hit.value, "hit_rate_error": hit.error, "closed_hit_rate": run.closed_hit_rate,
        "expected_ms": expected.value, "expected_ms_error": expected.error, "closed_ms": run.closed_ms,
        "query_ms": query.value, "query_ms_error": query.error, "load": run.load,
    }  # fmt: skip
    return tuple(values[name] for name in RUN_COLUMNS)


def _estimate(estimate: Estimate, digits: int) -> str:
    error = "-" if estimate.error is None else f"{2 * estimate.error:.{digits}f}"
    return "-" if estimate.value is None else f"{estimate.value:.{digits}f} +- {error}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
