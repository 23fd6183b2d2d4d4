"""The data of the paper's Figures 4a, 4b, 5, 6a and 6b, a CSV file each; the plots draw nothing else."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.simulate.closed_form import (
    cold_ms,
    expected_ms,
    fall_ms,
    fast_ms,
    hit_rate,
    prefill_ms,
    served_latency,
    speedup,
    wasted_rate,
)
from loadgen.simulate.costs import Costs, Measured
from loadgen.simulate.runs import Run
from stream_engine.util.intervals import wilson

ENTRIES = range(1, 257)
RHOS = np.geomspace(0.05, 20, 201)
FALL_THROUGH_0, FALL_THROUGH_ENTRY = "fall-through, delta 0", "fall-through, delta L_entry"


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of numbers with a name, as a CSV file holds it. A number that there is not is None."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def column(self, name: str) -> list[Any]:
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def save(self, folder: Path) -> Path:
        path = folder / f"{self.name}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(self.rows)
        return path


def sheets(measured: Measured, sweep: Sequence[Run], delta: int) -> dict[str, Sheet]:
    """By name. Those of measured points are empty where the benchmark's file has none, and for the paper's
    constants: the paper prints its points nowhere as numbers."""
    costs = measured.costs
    made = (
        latency(costs), speedups(costs), anatomy(costs), hit_rates(), effective(costs, delta),
        simulated(sweep), measured_cold(measured), measured_hits(measured),
    )  # fmt: skip
    return {sheet.name: sheet for sheet in made}


def latency(costs: Costs) -> Sheet:
    """Figure 4a: Eqs. 2 and 3 over the entry's length."""
    rows = [(entry, cold_ms(costs, entry), fast_ms(costs)) for entry in ENTRIES]
    return Sheet("fig4a", ("entry_tokens", "cold_ms", "fast_ms"), rows)


def speedups(costs: Costs) -> Sheet:
    """Figure 4b: Eq. 4."""
    return Sheet("fig4b", ("entry_tokens", "speedup"), [(entry, speedup(costs, entry)) for entry in ENTRIES])


def anatomy(costs: Costs) -> Sheet:
    """Figure 5: what each path is made of, at the entry's length; the parts of a row sum to its total."""
    entry = costs.entry_tokens
    whole, decode, restore = prefill_ms(costs, entry), costs.decode_ms, costs.restore_ms
    return Sheet(
        "fig5",
        ("path", "restore_ms", "prefill_ms", "decode_ms", "scan_ms", "total_ms"),
        [
            ("cold", 0.0, whole, decode, 0.0, cold_ms(costs, entry)),
            (FALL_THROUGH_0, restore, 0.0, decode, 0.0, fall_ms(costs, entry, 0)),
            (FALL_THROUGH_ENTRY, restore, whole, decode, 0.0, fall_ms(costs, entry, entry)),
            ("fast", 0.0, 0.0, 0.0, costs.scan_ms, fast_ms(costs)),
        ],
    )


def hit_rates() -> Sheet:
    """Figure 6a: Eq. 8 over rho."""
    rows = [(float(rho), hit_rate(float(rho)), wasted_rate(hit_rate(float(rho)))) for rho in RHOS]
    return Sheet("fig6a", ("rho", "hit_rate", "wasted_rate"), rows)


def effective(costs: Costs, delta: int) -> Sheet:
    """Figure 6b: Eq. 9 over rho, between L_cold and what a served query costs."""
    entry = costs.entry_tokens
    cold = cold_ms(costs, entry)
    served = served_latency(costs.gate_fires, fast_ms(costs), fall_ms(costs, entry, delta))
    rows = [(float(rho), expected_ms(costs, hit_rate(float(rho)), delta), cold, served) for rho in RHOS]
    return Sheet("fig6b", ("rho", "expected_ms", "cold_ms", "served_ms"), rows)


def simulated(sweep: Sequence[Run]) -> Sheet:
    """The points of Figures 6a and 6b that the session-trace simulator gives, with standard errors."""
    rows = []
    for run in sweep:
        hit, expected, query = run.outcome.hit_rate, run.outcome.expected_ms, run.outcome.query_ms
        parts = (hit.value, hit.error, expected.value, expected.error, query.value, query.error)
        rows.append((run.rho, int(run.outcome.total("completed")), *parts))
    columns = ("rho", "prepositions", "hit_rate", "hit_rate_error", "expected_ms", "expected_ms_error")
    return Sheet("fig6-simulated", (*columns, "query_ms", "query_ms_error"), rows)


def measured_cold(measured: Measured) -> Sheet:
    """The markers of Figure 4a (HW-5)."""
    rows = [(row.entry_tokens, row.first_token_ms) for row in measured.cold]
    return Sheet("fig4a-measured", ("entry_tokens", "first_token_ms"), rows)


def measured_hits(measured: Measured) -> Sheet:
    """The points of Figure 6a (HW-4), with Wilson 95 % intervals."""
    rows = [
        (row.rho, row.prepositions, row.hits / row.prepositions, *wilson(row.hits, row.prepositions))
        for row in measured.hit_rates
    ]
    return Sheet("fig6a-measured", ("rho", "prepositions", "hit_rate", "low", "high"), rows)
