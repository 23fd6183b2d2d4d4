"""Mixtures of exponential gaps: their means and shapes, and the hit rate between two of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from loadgen.simulate.closed_form import hit_rate
from loadgen.simulate.gaps import Gaps, hit_rate_between

SHAPES = (Gaps.poisson, Gaps.bursts, Gaps.silences)
DRAWS = 200_000


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_the_rate_asked_for(shape: Callable[[float], Gaps]) -> None:
    gaps = shape(4.0)
    assert gaps.mean == pytest.approx(0.25)
    drawn = gaps.draw(np.random.default_rng(1), DRAWS)
    assert drawn.mean() == pytest.approx(0.25, abs=4 * drawn.std() / DRAWS**0.5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rate", [0.1, 1.0, 10.0])
def test_a_gap_is_unbroken_as_often_as_a_poisson_process_leaves_it(
    shape: Callable[[float], Gaps], rate: float
) -> None:
    """Against counts of a Poisson process in drawn gaps, with their standard error."""
    rng = np.random.default_rng(2)
    empty = rng.poisson(rate * shape(1.0).draw(rng, DRAWS)) == 0
    assert empty.mean() == pytest.approx(shape(1.0).unbroken(rate), abs=4 * empty.std() / DRAWS**0.5)


def test_bursts_come_close_together_and_silences_are_rare_and_long() -> None:
    rng = np.random.default_rng(3)
    bursts, silences = Gaps.bursts(1.0).draw(rng, DRAWS), Gaps.silences(1.0).draw(rng, DRAWS)
    assert (bursts < 0.05).mean() == pytest.approx(0.9, abs=0.01)
    assert silences[silences > 10].sum() / silences.sum() == pytest.approx(1 / 3, abs=0.08)
    assert (silences > 10).mean() < 0.01


def test_what_is_left_of_a_gap_under_way_is_length_biased() -> None:
    """Mean E[X^2] / 2 E[X]: for exponentials, sum of w m^2 over the mean."""
    gaps = Gaps.silences(1.0)
    rng = np.random.default_rng(4)
    rests = np.array([gaps.draw_rest(rng) for _ in range(5_000)])
    mean = sum(w * m**2 for w, m in zip(gaps.weights, gaps.means, strict=True)) / gaps.mean
    assert rests.mean() == pytest.approx(mean, abs=4 * rests.std() / len(rests) ** 0.5)
    assert mean > 5 * gaps.mean


def test_after_a_while_the_longer_gaps_are_left() -> None:
    gaps, rng = Gaps.bursts(1.0), np.random.default_rng(5)
    drawn = gaps.draw(rng, DRAWS)
    rest = drawn[drawn > 0.02] - 0.02
    assert rest.mean() == pytest.approx(gaps.after(0.02).mean, abs=4 * rest.std() / len(rest) ** 0.5)
    assert Gaps.poisson(3.0).after(7.0) == Gaps.poisson(3.0)
    with pytest.raises(ValueError, match=r"no gap of mean 0\.001 s lasts 10 s"):
        Gaps.poisson(1e3).after(10.0)


@pytest.mark.parametrize("rho", [0.1, 1.0, 10.0])
def test_poisson_updates_and_queries_hit_as_eq_8_says(rho: float) -> None:
    assert hit_rate_between(Gaps.poisson(2.0), Gaps.poisson(2.0 * rho)) == pytest.approx(hit_rate(rho))
    once = Gaps((0.5, 0.5), (1 / rho, 1 / rho))  # the same gaps, by the other formula
    assert hit_rate_between(Gaps.poisson(1.0), once) == pytest.approx(hit_rate(rho))


def test_no_formula_where_neither_is_poisson() -> None:
    assert hit_rate_between(Gaps.bursts(1.0), Gaps.silences(1.0)) is None
