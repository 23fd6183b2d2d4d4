"""What is simulated: the rows of each table, and recorded traces with and without queries."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.simulate.closed_form import expected_ms, hit_rate
from loadgen.simulate.costs import PAPER
from loadgen.simulate.runs import SimulationPlan, run
from loadgen.simulate.simulator import SimulatedBudget
from loadgen.simulate.trace import Trace

PLAN = SimulationPlan(
    costs=PAPER, budget=SimulatedBudget(8192, 32, 1024), rhos=(0.1, 1.0, 10.0), updates=8000, repeats=20
)
UPDATES = np.arange(0.0, 50.0)


def test_the_sweep_is_of_one_session_with_the_closed_form_beside() -> None:
    sweep = run(PLAN, {}).sweep
    assert [(row.rho, row.sessions, row.outcome.total("updates")) for row in sweep] == [
        (rho, 1, 8000.0) for rho in PLAN.rhos
    ]
    assert [row.closed_hit_rate for row in sweep] == pytest.approx([hit_rate(rho) for rho in PLAN.rhos])
    assert [row.closed_ms for row in sweep] == pytest.approx([expected_ms(PAPER, hit_rate(r)) for r in PLAN.rhos])
    assert [row.outcome.rho for row in sweep] == pytest.approx(PLAN.rhos, rel=0.2)
    assert all(row.outcome.total("skipped") == 0 for row in sweep)


def test_more_sessions_on_the_budget_skip_more_and_their_queries_wait_longer() -> None:
    """8 regions fill it. At a share of a region and more, only entries on a full region have no room; at half of
    one, where a session's data never falls below its half, none has."""
    crowds = run(PLAN, {}).crowds
    assert [row.sessions for row in crowds] == [4, 8, 10, 12, 16]
    skipped = [row.outcome.skipped.value or 0.0 for row in crowds]
    assert skipped[0] == 0
    assert 0 < skipped[1] < 0.1
    assert skipped == sorted(skipped)
    assert skipped[-1] > 0.9
    means = [row.outcome.query_ms.value or 0.0 for row in crowds]
    assert means[0] < means[2] < means[3] < means[4] < 54.3
    loads = [row.load / row.sessions for row in crowds]
    assert loads == pytest.approx([row.outcome.load for row in crowds])


def test_a_recorded_trace_is_played_as_it_was() -> None:
    recorded = {"A": Trace.of(UPDATES, UPDATES[::2] + 0.5), "B": Trace.of(UPDATES, np.array([]))}
    (row,) = run(PLAN, recorded).recorded
    assert (row.sessions, row.outcome.total("updates"), row.outcome.total("hits")) == (2, 98.0, 25.0)
    assert row.rho == row.outcome.rho == 25 / 98
    assert row.closed_hit_rate == pytest.approx(hit_rate(25 / 98))


def test_recorded_updates_without_queries_are_asked_at_each_rho() -> None:
    recorded = {"A": Trace.of(np.arange(0.0, 9000.0, 3), np.array([]))}
    runs = run(PLAN, recorded).recorded
    assert [row.rho for row in runs] == list(PLAN.rhos)
    for row in runs:
        count = row.outcome.total("queries")
        assert count == pytest.approx(2999 * row.rho, abs=4 * (2999 * row.rho) ** 0.5)
        # regular updates: a query in a gap of 3 s less the pass, all but surely at rho 10
        formula = 1 - np.exp(-row.rho * (3 - 0.015174) / 3)
        assert row.outcome.hit_rate.value == pytest.approx(
            formula, abs=4 * (formula * (1 - formula) / 2999) ** 0.5
        )


def test_the_seed_decides() -> None:
    def rates(seed: int) -> list[float | None]:
        plan = SimulationPlan(costs=PAPER, budget=PLAN.budget, updates=200, repeats=4, seed=seed)
        return [row.outcome.hit_rate.value for row in run(plan, {}).sweep]

    assert rates(1) == rates(1) != rates(2)
