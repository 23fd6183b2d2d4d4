"""Ratios over sessions, and standard errors that hold."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.simulate.outcome import Estimate, SimulatedOutcome
from loadgen.simulate.simulator import Tally

TALLIES = (
    Tally(10.0, 8, 2, 1, 5, 3, 12, 6, 2, 100.0, 60.0, 400.0),
    Tally(30.0, 8, 0, 0, 8, 2, 4, 1, 1, 240.0, 20.0, 200.0),
)


def test_ratios_are_of_sums() -> None:
    outcome = SimulatedOutcome(TALLIES)
    assert outcome.rho == 1.0
    assert outcome.hit_rate.value == pytest.approx(5 / 13)
    assert outcome.skipped.value == 2 / 16
    assert outcome.expected_ms.value == pytest.approx(340 / 13)
    assert outcome.query_ms.value == 5.0
    assert outcome.load == pytest.approx(0.6 / 40)
    assert [tally.cold for tally in TALLIES] == [4, 2]


def test_nothing_counted_is_none_and_one_session_has_no_error() -> None:
    assert Estimate.ratio([0, 0], [0, 0]) == Estimate(None, None)
    assert Estimate.ratio([3], [4]) == Estimate(0.75, None)


def test_the_error_is_that_of_repeated_runs() -> None:
    """Sessions whose own rates differ: the error covers that, where a binomial one would not."""
    rng = np.random.default_rng(1)
    values, errors = [], []
    for _ in range(400):
        rates, wholes = rng.uniform(0.1, 0.9, 40), rng.integers(50, 150, 40)
        found = Estimate.ratio(rng.binomial(wholes, rates).tolist(), wholes.tolist())
        assert found.value is not None
        assert found.error is not None
        values.append(found.value)
        errors.append(found.error)
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.15)
    assert np.mean(errors) > 3 * (0.25 / 4000) ** 0.5
