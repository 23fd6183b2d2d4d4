"""Which traces are simulated: a sweep over rho, other shapes of arrivals, many sessions on one cell budget, a
recorded trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.simulate.closed_form import expected_ms, hit_rate, preposition_ms
from loadgen.simulate.costs import Costs
from loadgen.simulate.gaps import Gaps, hit_rate_between
from loadgen.simulate.outcome import SimulatedOutcome
from loadgen.simulate.simulator import SimulatedBudget, simulate
from loadgen.simulate.trace import Trace, asked, drawn

CROWDING = (0.5, 1.0, 1.25, 1.5, 2.0)
"""Sessions, as a multiple of those whose full regions fill the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationPlan:
    """``updates`` of all sessions of one run together; ``rho`` is the one at which shapes and crowds run.

    Sweep and shapes are of one session that has the accelerator alone, ``repeats`` times over."""

    costs: Costs
    budget: SimulatedBudget
    rhos: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    rho: float = 1.0
    updates: int = 50_000
    repeats: int = 50
    updates_per_second: float = 0.2
    delta: int = 0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """``closed_hit_rate`` is the formula for these arrivals, None where none is known; ``sessions`` share one
    accelerator."""

    name: str
    rho: float
    sessions: int
    outcome: SimulatedOutcome
    closed_hit_rate: float | None
    closed_ms: float | None
    """E[L_pp] of Eq. 9 at that hit rate."""

    @property
    def load(self) -> float:
        """The accelerator's time for the queries and pre-positions of all its sessions, over the time they took.
        Near 1 and above, queries would wait for each other, which the simulator does not count."""
        return self.sessions * self.outcome.load


@dataclass(frozen=True, slots=True)
class Runs:
    sweep: list[Run]
    shapes: list[Run]
    crowds: list[Run]
    recorded: list[Run]


def run(plan: SimulationPlan, recorded: Mapping[str, Trace]) -> Runs:
    """All of it; some seconds."""
    return Runs(_sweep(plan), _shapes(plan), _crowds(plan), _recorded(plan, recorded))


def _sweep(plan: SimulationPlan) -> list[Run]:
    rate = plan.updates_per_second
    return [_simulated(plan, "Poisson", Gaps.poisson(rate), Gaps.poisson(rho * rate), rho) for rho in plan.rhos]


def _shapes(plan: SimulationPlan) -> list[Run]:
    rate, asking = plan.updates_per_second, plan.rho * plan.updates_per_second
    shapes = {
        "both Poisson": (Gaps.poisson(rate), Gaps.poisson(asking)),
        "updates in bursts": (Gaps.bursts(rate), Gaps.poisson(asking)),
        "updates with silences": (Gaps.silences(rate), Gaps.poisson(asking)),
        "queries in bursts": (Gaps.poisson(rate), Gaps.bursts(asking)),
        "queries with silences": (Gaps.poisson(rate), Gaps.silences(asking)),
    }
    return [_simulated(plan, name, updates, queries, plan.rho) for name, (updates, queries) in shapes.items()]


def _crowds(plan: SimulationPlan) -> list[Run]:
    """Sessions that share the cell budget: with more of them, more entries find no room."""
    fit = plan.budget.cells / plan.budget.region_tokens
    updates = Gaps.poisson(plan.updates_per_second)
    queries = Gaps.poisson(plan.rho * plan.updates_per_second)
    runs = []
    for sessions in sorted({max(1, round(times * fit)) for times in CROWDING}):
        outcome = _outcome(plan, _drawn(plan, updates, queries, sessions), plan.budget)
        runs.append(_told(plan, "Poisson", plan.rho, sessions, outcome, hit_rate(plan.rho)))
    return runs


def _recorded(plan: SimulationPlan, recorded: Mapping[str, Trace]) -> list[Run]:
    """As they were recorded; where nobody asked, with Poisson queries at each rho of each session's mean rate."""
    if not recorded:
        return []
    if any(len(trace.queries) for trace in recorded.values()):
        outcome = _outcome(plan, list(recorded.values()))
        return [_told(plan, "as recorded", outcome.rho, len(recorded), outcome, hit_rate(outcome.rho))]
    runs = []
    for rho in plan.rhos:
        traces = []
        for at, trace in enumerate(recorded.values()):
            queries = Gaps.poisson(rho * trace.intervals / trace.seconds)
            traces.append(asked(trace.updates, queries, np.random.default_rng((plan.seed, at, 1))))
        runs.append(_told(plan, "recorded updates", rho, len(traces), _outcome(plan, traces), hit_rate(rho)))
    return runs


def _simulated(plan: SimulationPlan, name: str, updates: Gaps, queries: Gaps, rho: float) -> Run:
    outcome = _outcome(plan, _drawn(plan, updates, queries, plan.repeats))
    completed = updates.after(preposition_ms(plan.costs, plan.costs.entry_tokens) / 1e3)
    return _told(plan, name, rho, 1, outcome, hit_rate_between(completed, queries))


def _drawn(plan: SimulationPlan, updates: Gaps, queries: Gaps, sessions: int) -> list[Trace]:
    intervals = max(1, plan.updates // sessions)
    return [drawn(plan.seed, session, updates, queries, intervals) for session in range(sessions)]


def _outcome(
    plan: SimulationPlan, traces: Sequence[Trace], budget: SimulatedBudget | None = None
) -> SimulatedOutcome:
    tallies = []
    for at, trace in enumerate(traces):
        rng = np.random.default_rng((plan.seed, at, 2))
        tallies.append(simulate(trace, plan.costs, rng, plan.delta, budget, len(traces)))
    return SimulatedOutcome(tuple(tallies))


def _told(
    plan: SimulationPlan, name: str, rho: float, sessions: int, outcome: SimulatedOutcome, closed: float | None
) -> Run:
    latency = None if closed is None else expected_ms(plan.costs, closed, plan.delta)
    return Run(name=name, rho=rho, sessions=sessions, outcome=outcome, closed_hit_rate=closed, closed_ms=latency)
