"""``stream-engine simulate``: the paper's closed form and session-trace model, without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadgen.rhos import Rhos
from stream_engine.client.failure import Failure

if TYPE_CHECKING:
    from loadgen.simulate.costs import Costs
    from loadgen.simulate.figures import Sheet

MOST_QUERIES = 50_000_000
"""Of one simulated run: more take minutes, and gigabytes where there are few repeats."""
SMALLEST_RHO = 1e-6
WIDTH = 144
"""Columns where the output is no terminal; the report file's, too."""


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True,
              help="Folder for the report, the figures as PNG and SVG, and their data as CSV.")  # fmt: skip
@click.option("--measured", "measured_file", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              help="JSON with costs measured on a machine, instead of the paper's constants.")  # fmt: skip
@click.option("--trace", "trace_file", type=click.Path(path_type=Path, dir_okay=False, exists=True),
              help="A recorded trace, too: CSV with at (seconds), session, event (update or query).")  # fmt: skip
@click.option("--rho", "rhos", type=Rhos(), default="0.1,0.3,1,3,10", show_default=True,
              help="Queries per update of a session.")  # fmt: skip
@click.option("--updates", type=click.IntRange(2, 1_000_000), default=50_000, show_default=True,
              help="Of all sessions of one simulated run together.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(2, 10_000), default=50, show_default=True,
              help="Sessions of which each has the accelerator alone; standard errors are over them.")  # fmt: skip
@click.option("--updates-per-second", type=click.FloatRange(1e-6, 1e6), default=0.2, show_default=True,
              help="Mean rate of each session.")  # fmt: skip
@click.option("--delta", type=click.IntRange(0), default=0, show_default=True,
              help="Tokens that a fall-through has to process (Eq. 5).")  # fmt: skip
@click.option("--cells", type=click.IntRange(1, 10**9), default=65_536, show_default=True,
              help="Cell budget of the sessions that share one.")  # fmt: skip
@click.option("--region-tokens", type=click.IntRange(2, 10**7), default=4_096, show_default=True,
              help="Tokens of data to which a session grows there; then its older half goes.")  # fmt: skip
@click.option("--update-tokens", type=click.IntRange(1, 10**6), default=32, show_default=True,
              help="Tokens that an update adds there.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Draws arrivals and gate.")
def simulate(
    out: Path,
    measured_file: Path | None,
    trace_file: Path | None,
    rhos: tuple[float, ...],
    updates: int,
    repeats: int,
    updates_per_second: float,
    delta: int,
    cells: int,
    region_tokens: int,
    update_tokens: int,
    seed: int,
) -> None:
    """Compute what pre-positioning brings, and simulate session traces beside the formulas.

    The closed form (Eqs. 2-10); Poisson and other arrivals; sessions that share a cell budget; a recorded trace.
    With the paper's constants, or with measured ones. No engine, model, broker or GPU; some seconds.

    \b
    Examples:
      stream-engine simulate --out runs/simulate
      stream-engine simulate --measured bench.json --trace trace.csv --out runs/here
    """
    from rich.console import Console

    from loadgen.simulate import report
    from loadgen.simulate.costs import PAPER, Measured, read_measured
    from loadgen.simulate.figures import sheets
    from loadgen.simulate.runs import SimulationPlan, run
    from loadgen.simulate.simulator import SimulatedBudget
    from loadgen.simulate.trace import read_traces

    try:
        measured = Measured(costs=PAPER) if measured_file is None else read_measured(measured_file)
        recorded = {} if trace_file is None else read_traces(trace_file)
        budget = SimulatedBudget(cells, update_tokens, region_tokens)
        out.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        raise Failure(str(error), 2) from error
    if updates < repeats:
        raise click.UsageError(f"--updates {updates} leaves some of --repeats {repeats} without one")
    if min(rhos) < SMALLEST_RHO or max(rhos) * updates > MOST_QUERIES:
        raise click.UsageError(
            f"--rho: from {SMALLEST_RHO:g} to {MOST_QUERIES / updates:g}, which with --updates {updates} are "
            f"{MOST_QUERIES} queries"
        )
    if delta > measured.costs.entry_tokens:
        raise click.UsageError(f"--delta {delta} is more than the entry's {measured.costs.entry_tokens} tokens")
    plan = SimulationPlan(
        costs=measured.costs,
        budget=budget,
        rhos=rhos,
        updates=updates,
        repeats=repeats,
        updates_per_second=updates_per_second,
        delta=delta,
        seed=seed,
    )
    if outside := sum(trace.outside for trace in recorded.values()):
        click.echo(
            f"{trace_file}: {outside} queries before a session's first update or after its last left out", err=True
        )
    try:
        runs = run(plan, recorded)
    except ValueError as error:
        raise Failure(
            f"--updates-per-second {updates_per_second:g} leaves no time for a pre-position: {error}", 2
        ) from error
    figures = sheets(measured, runs.sweep, delta)
    console = Console(record=True, highlight=False)
    if not console.is_terminal:
        console = Console(record=True, highlight=False, width=WIDTH)
    report.show(console, measured, plan, runs)
    try:
        report.save_text(console, out)
        for sheet in (*figures.values(), report.runs_sheet(runs)):
            sheet.save(out)
        _save_plots(out, figures, measured.costs)
    except OSError as error:
        raise Failure(f"not all of it could be written: {error}") from error
    click.echo(f"report, figures and their data in {out}")


def _save_plots(out: Path, figures: Mapping[str, Sheet], costs: Costs) -> None:
    try:
        from loadgen.simulate.plots import save_plots
    except ImportError as error:
        raise Failure(
            f"report and CSV files are in {out}, but no plots: {error.name} is missing: "
            "pip install 'stream-engine[calibrate]'"
        ) from error
    save_plots(out, figures, costs)
