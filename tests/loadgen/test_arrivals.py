"""Poisson arrivals: rates, reproducibility, whole intervals."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest

from loadgen.arrivals import Schedule, poisson, schedule
from loadgen.simulate.closed_form import hit_rate


def intervals_with_a_query(plan: Schedule, session: int) -> tuple[int, int]:
    """Intervals between updates, and those with a query in them, counted from the schedule alone."""
    updates = [arrival.at for arrival in plan.updates if arrival.session == session]
    queries = [arrival.at for arrival in plan.queries if arrival.session == session]
    hit = {next(n for n, end in enumerate(updates) if at < end) for at in queries}
    return len(updates), len(hit)


@pytest.mark.parametrize("rate", [0.2, 1.0, 40.0])
def test_gaps_have_the_mean_and_spread_of_an_exponential(rate: float) -> None:
    times = list(itertools.islice(poisson(np.random.default_rng(3), rate), 20_000))
    gaps = [after - before for before, after in itertools.pairwise([0.0, *times])]
    assert min(gaps) > 0
    assert statistics.mean(gaps) == pytest.approx(1 / rate, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / rate, rel=0.03)
    assert sum(gap > 1 / rate for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.015)


def test_counts_of_a_window_are_poisson() -> None:
    counts = [
        len(list(itertools.takewhile(lambda at: at < 2.0, poisson(np.random.default_rng(seed), 3.0))))
        for seed in range(3000)
    ]
    assert statistics.mean(counts) == pytest.approx(6.0, rel=0.04)
    assert statistics.variance(counts) == pytest.approx(6.0, rel=0.1)


def test_a_seed_reproduces_and_another_does_not() -> None:
    first, again, other = (schedule(seed, 2.0, 3, 1.0, 20.0) for seed in (5, 5, 6))
    assert first == again
    assert first.updates != other.updates
    assert first.queries != other.queries


def test_sessions_are_independent_and_rho_leaves_the_updates_alone() -> None:
    few, many = schedule(1, 0.1, 4, 2.0, 30.0), schedule(1, 10.0, 4, 2.0, 30.0)
    assert few.updates == many.updates
    assert len({arrival.at for arrival in many.updates}) == len(many.updates)
    assert {arrival.session for arrival in many.updates} == {0, 1, 2, 3}


def test_every_session_ends_with_its_first_update_past_the_horizon() -> None:
    plan = schedule(2, 5.0, 6, 1.5, 10.0)
    assert list(plan.updates) == sorted(plan.updates)
    assert list(plan.queries) == sorted(plan.queries)
    for session in range(6):
        updates = [arrival.at for arrival in plan.updates if arrival.session == session]
        assert updates[-1] >= 10.0
        assert all(at < 10.0 for at in updates[:-1])
        assert all(arrival.at < updates[-1] for arrival in plan.queries if arrival.session == session)
    assert plan.seconds == plan.updates[-1].at


@pytest.mark.parametrize("rho", [0.1, 1.0, 10.0])
def test_intervals_hit_as_often_as_the_closed_form_says_however_short_the_run(rho: float) -> None:
    """Eq. 8, without bias from the ends: on average two updates a session."""
    plan = schedule(4, rho, 6000, 1.0, 1.0)
    found = [intervals_with_a_query(arrival, session) for arrival, session in _by_session(plan, 6000)]
    intervals, hit = (sum(column) for column in zip(*found, strict=True))
    assert intervals == len(plan.updates)
    assert hit / intervals == pytest.approx(hit_rate(rho), abs=0.012)


def _by_session(plan: Schedule, sessions: int) -> list[tuple[Schedule, int]]:
    """A schedule of each session alone, so that looking it up is not quadratic."""
    updates = {n: tuple(group) for n, group in _grouped(plan.updates)}
    queries = {n: tuple(group) for n, group in _grouped(plan.queries)}
    return [(Schedule(updates[n], queries.get(n, ())), n) for n in range(sessions)]


def _grouped(arrivals: tuple) -> itertools.groupby:  # type: ignore[type-arg]
    return itertools.groupby(
        sorted(arrivals, key=lambda arrival: (arrival.session, arrival.at)), key=lambda arrival: arrival.session
    )
