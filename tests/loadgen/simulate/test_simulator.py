"""The simulator by hand, against a slow one that goes through the events in order, and against the closed form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from loadgen.simulate.closed_form import expected_ms, hit_rate
from loadgen.simulate.costs import PAPER, Costs
from loadgen.simulate.gaps import Gaps, hit_rate_between
from loadgen.simulate.outcome import SimulatedOutcome
from loadgen.simulate.simulator import SimulatedBudget, Tally, simulate
from loadgen.simulate.trace import Trace, drawn

ROUND = Costs(prefill_ms_per_token=10, decode_ms=300, scan_ms=1, restore_ms=50, entry_tokens=10, gate_fires=1.0)
"""A pass of 0.1 s; cold 400 ms, fast 1 ms, fall-through at delta 0 350 ms."""
INSTANT = dataclasses.replace(PAPER, prefill_ms_per_token=1e-9)
"""The closed form's world: a pre-position is ready as its update is applied."""
ERRORS = 4
"""Standard errors that a simulated share may lie from its formula."""


def played(updates: list[float], queries: list[float], costs: Costs = ROUND, delta: int = 0) -> Tally:
    return simulate(Trace.of(np.array(updates), np.array(queries)), costs, np.random.default_rng(0), delta)


def test_a_distribution_is_read_by_every_query_until_the_next_update() -> None:
    tally = played([0, 10, 20], [1, 2, 3])
    assert (tally.updates, tally.completed, tally.hits, tally.skipped, tally.overtaken) == (2, 2, 1, 0, 0)
    assert (tally.queries, tally.fast, tally.fall, tally.cold) == (3, 3, 0, 0)
    assert tally.query_ms == 3.0
    assert tally.settled_ms == 1.0 + 400.0  # one read, one wasted
    assert tally.busy_ms == pytest.approx(200.0)


def test_a_gate_that_does_not_fire_falls_through() -> None:
    tally = played([0, 10], [1, 2], dataclasses.replace(ROUND, gate_fires=0.0), delta=3)
    assert (tally.fast, tally.fall, tally.hits) == (0, 2, 1)
    assert tally.query_ms == 2 * (350 + 30)
    assert tally.settled_ms == 380


def test_a_query_before_the_pass_has_ended_is_cold_and_puts_it_off() -> None:
    """0.05 is cold and moves the end from 0.1 to 0.5; 0.45 is cold too and moves it to 0.9."""
    tally = played([0, 10], [0.05, 0.45, 0.95])
    assert (tally.cold, tally.fast, tally.completed, tally.hits) == (2, 1, 1, 1)
    assert played([0, 0.92], [0.05, 0.45]).completed == 1
    assert played([0, 0.88], [0.05, 0.45]).overtaken == 1
    assert played([0, 10], [0.05, 0.55]).fast == 1


def test_a_pass_that_the_next_update_overtakes_is_neither_hit_nor_wasted() -> None:
    tally = played([0, 0.09, 5], [1])
    assert (tally.overtaken, tally.completed, tally.hits) == (1, 1, 1)
    assert tally.settled_ms == 1.0


def test_instants_that_events_share() -> None:
    """A query at the instant of an update comes after it, so during its pass; a pass may end with its gap."""
    tally = played([0, 10, 20], [0, 10])
    assert (tally.cold, tally.completed, tally.hits) == (2, 2, 0)
    tally = played([0, 0.1, 5], [])
    assert (tally.overtaken, tally.completed) == (0, 2)


def grown(updates: int, by: int, region: int) -> list[int]:
    """Tokens of data after each update, counted one by one."""
    state, states = 0, []
    for _ in range(updates):
        if state + by > region:
            state = region // 2
        state += by
        states.append(state)
    return states


@pytest.mark.parametrize(("by", "region"), [(1, 2), (3, 10), (32, 4096), (7, 100), (50, 101)])
def test_an_entry_is_skipped_where_the_share_has_no_room(by: int, region: int) -> None:
    states = grown(300, by, region)
    assert max(states) <= region
    for share in (region // 2, region, region + 18, region + 17):
        skipped = SimulatedBudget(3 * share + 2, by, region).skipped(300, 18, sessions=3)
        assert skipped.tolist() == [share - state < 18 for state in states]


def test_a_skipped_pre_position_leaves_its_queries_cold() -> None:
    trace = Trace.of(np.array([0.0, 10, 20, 30]), np.array([1.0, 11, 21]))
    budget = SimulatedBudget(2 * 30, 10, 40)  # states 10, 20, 30; the share is 30, the entry 10
    tally = simulate(trace, ROUND, np.random.default_rng(0), 0, budget, sessions=2)
    assert (tally.skipped, tally.completed, tally.hits, tally.fast, tally.cold) == (1, 2, 2, 2, 1)


@pytest.mark.parametrize("by", [0, 21])
def test_a_region_must_hold_two_updates(by: int) -> None:
    with pytest.raises(ValueError, match="region of 40 tokens"):
        SimulatedBudget(100, by, 40)


def slowly(trace: Trace, costs: Costs, fires: list[bool], skips: list[bool]) -> dict[str, float]:
    """Event by event, from the words of the algorithms, without arrays."""
    cold = costs.prefill_ms_per_token * costs.entry_tokens + costs.decode_ms
    fall, fast = costs.restore_ms + costs.decode_ms, costs.scan_ms
    pass_s = costs.prefill_ms_per_token * costs.entry_tokens / 1e3
    found = dict.fromkeys(("completed", "hits", "overtaken", "skipped", "fast", "fall", "cold", "settled_ms"), 0.0)
    for at, (start, end) in enumerate(zip(trace.updates[:-1], trace.updates[1:], strict=True)):
        ends, latency, served = start + pass_s, fast if fires[at] else fall, 0
        for query in (asked for asked in trace.queries if start <= asked < end):
            if skips[at] or query < ends:
                found["cold"] += 1
                ends += cold / 1e3
            else:
                found["fast" if fires[at] else "fall"] += 1
                served += 1
        if skips[at]:
            found["skipped"] += 1
        elif ends > end:
            found["overtaken"] += 1
        else:
            found["completed"] += 1
            found["hits"] += served > 0
            found["settled_ms"] += latency if served else cold
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("with_budget", [False, True])
def test_it_counts_as_the_slow_one_does(seed: int, with_budget: bool) -> None:
    """With passes about as long as the gaps, so that everything happens."""
    costs = dataclasses.replace(ROUND, gate_fires=0.6)
    trace = drawn(seed, 0, Gaps.bursts(1.0), Gaps.poisson(2.0), 400)
    budget = SimulatedBudget(100, 7, 100) if with_budget else None
    gate = 1000 + seed  # not the seed of the trace: what fires would hang on the gaps
    fires = (np.random.default_rng(gate).random(400) < 0.6).tolist()
    skips = [100 - state < 10 for state in grown(400, 7, 100)] if with_budget else [False] * 400
    tally = simulate(trace, costs, np.random.default_rng(gate), 0, budget)
    slow = slowly(trace, costs, fires, skips)
    assert {name: getattr(tally, name) for name in slow} == pytest.approx(slow)
    assert min(slow[name] for name in slow if name != "skipped") > 0
    assert (slow["skipped"] > 0) == with_budget


def many(updates: Gaps, queries: Gaps, costs: Costs = INSTANT, delta: int = 0) -> SimulatedOutcome:
    """60 sessions of 500 updates."""
    traces = [drawn(11, session, updates, queries, 500) for session in range(60)]
    rngs = (np.random.default_rng((11, session, 2)) for session in range(60))
    return SimulatedOutcome(
        tuple(simulate(trace, costs, rng, delta) for trace, rng in zip(traces, rngs, strict=True))
    )


@pytest.mark.parametrize("rho", [0.1, 0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [0, 18])
def test_poisson_traces_hit_and_cost_as_the_closed_form_says(rho: float, delta: int) -> None:
    """Eqs. 8 and 9, within standard errors that are small enough to tell rho from one a tenth larger."""
    outcome = many(Gaps.poisson(0.5), Gaps.poisson(0.5 * rho), delta=delta)
    hit, expected = outcome.hit_rate, outcome.expected_ms
    assert hit.value == pytest.approx(hit_rate(rho), abs=ERRORS * hit.error)
    assert expected.value == pytest.approx(expected_ms(INSTANT, hit_rate(rho), delta), abs=ERRORS * expected.error)
    assert ERRORS * hit.error < hit_rate(1.1 * rho) - hit_rate(rho)


@pytest.mark.parametrize("shape", [Gaps.bursts, Gaps.silences])
@pytest.mark.parametrize("of_updates", [True, False])
def test_bursts_and_silences_hit_as_their_formula_says(shape: Callable[[float], Gaps], of_updates: bool) -> None:
    other = Gaps.poisson(1.0)
    updates, queries = (shape(1.0), other) if of_updates else (other, shape(1.0))
    hit, formula = many(updates, queries).hit_rate, hit_rate_between(updates, queries)
    assert hit.value == pytest.approx(formula, abs=ERRORS * hit.error)
    assert hit.value < hit_rate(1.0) - ERRORS * hit.error  # and not as Poisson


def test_updates_in_bursts_overtake_passes_as_their_formula_says() -> None:
    """The share of gaps that outlast a pass, and the hit rate of those; queries rarely put one off."""
    costs = dataclasses.replace(PAPER, prefill_ms_per_token=0.5)  # 9 ms, as long as a gap within a burst
    updates, queries = Gaps.bursts(1.0), Gaps.poisson(0.3)
    outcome = many(updates, queries, costs)
    lasting = sum(w * np.exp(-0.009 / m) for w, m in zip(updates.weights, updates.means, strict=True))
    completed = outcome.total("completed") / outcome.total("updates")
    assert completed == pytest.approx(lasting, abs=ERRORS * (lasting * (1 - lasting) / 30_000) ** 0.5)
    hit = outcome.hit_rate
    assert hit.value == pytest.approx(hit_rate_between(updates.after(0.009), queries), abs=ERRORS * hit.error)


def test_of_all_queries_only_those_during_a_pass_are_cold() -> None:
    """Why the mean over queries lies below Eq. 9, which weighs pre-positions."""
    outcome = many(Gaps.poisson(1.0), Gaps.poisson(10.0))
    assert outcome.total("cold") == 0
    query, expected = outcome.query_ms, outcome.expected_ms
    assert query.value == pytest.approx(expected_ms(INSTANT, 1.0), abs=ERRORS * query.error)
    assert query.value < expected.value - ERRORS * expected.error
