"""From pairs to a gate: which tau, what is promised, and when the fast path stays closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from stream_engine.calibrate.choose import (
    BY_CONSTRUCTION,
    EARLIER,
    LATER,
    PILOT,
    SIMULATED,
    Demands,
    choose,
    curve_of,
    lower_envelope,
)
from stream_engine.calibrate.selection import smallest_certifiable
from stream_engine.model.render.builder import TokenBuilder

Make = Callable[..., pl.DataFrame]
DEMANDS = Demands(0.02, 0.05)


def rows(sample: str, gap: float, count: int, wrong: int = 0, **changes: Any) -> list[dict[str, Any]]:
    """``count`` windows of a sample at one gap, of which ``wrong`` differ from a sure full path."""
    differ = {"fast_answer": "down", "differs": True, "cause": "divergence", "right": False}
    base = {"sample": sample, "gap": gap} | changes
    return [base | (differ if number < wrong else {}) for number in range(count)]


PILOTS = [*rows(PILOT, 0.6, 10), *rows(PILOT, 4.1, 20), *rows(PILOT, 8.1, 10)]
"""A grid up to 8.0 that starts at 4.0."""


def test_tau_is_within_the_budget_on_every_calibrating_sample_and_certified(
    make_pairs: Make, builder: TokenBuilder
) -> None:
    pairs = make_pairs(
        *PILOTS,
        *rows(SIMULATED, 0.6, 500, wrong=40), *rows(SIMULATED, 5.0, 1_500),
        *rows(EARLIER, 1.6, 50, wrong=5), *rows(EARLIER, 5.0, 100),
        *rows(LATER, 5.0, 150, wrong=1),
    )  # fmt: skip
    entry = choose(pairs, builder.profile, DEMANDS)["trend"].calibration
    assert entry.tau == 1.75, "simulated series allow 0.75, the recorded ones do not"
    assert (entry.provable, entry.certified, entry.open) == (0.75, True, True)
    assert entry.smallest == 0.75, "over all calibrating windows"
    simulated, earlier, later = entry.measured
    assert (simulated.sample, simulated.fired, simulated.false_accepts) == (SIMULATED, 1_500, 0)
    assert (earlier.windows, earlier.fired, earlier.coverage) == (150, 100, pytest.approx(2 / 3))
    assert (later.fired, later.false_accepts) == (150, 1)
    assert later.budget == smallest_certifiable(150, 1, 0.05), "it took no part in the choice"
    assert earlier.budget > smallest_certifiable(100, 0, 0.05), "this one did"


def test_a_sample_too_small_certifies_nothing_and_says_so(make_pairs: Make, builder: TokenBuilder) -> None:
    entry = choose(make_pairs(*PILOTS, *rows(SIMULATED, 5.0, 100)), builder.profile, DEMANDS)["trend"].calibration
    assert (entry.tau, entry.open, entry.certified, entry.provable) == (0.0, True, False, None)
    assert "not certified" in entry.chosen


def test_where_no_tau_meets_the_budget_the_fast_path_stays_closed(make_pairs: Make, builder: TokenBuilder) -> None:
    pairs = make_pairs(*PILOTS, *rows(SIMULATED, 9.0, 200, wrong=20))
    entry = choose(pairs, builder.profile, DEMANDS)["trend"].calibration
    assert (entry.open, entry.certified, entry.smallest) == (False, False, None)
    never = choose(make_pairs(*rows(SIMULATED, 9.0, 200, in_set=False)), builder.profile, DEMANDS)["trend"]
    assert not never.calibration.open
    assert never.calibration.measured[0].budget == 1.0


def test_a_share_of_right_answers_can_be_asked_for(make_pairs: Make, builder: TokenBuilder) -> None:
    unsure = rows(SIMULATED, 2.1, 500, right=False, truth="flat")
    pairs = make_pairs(*PILOTS, *unsure, *rows(SIMULATED, 5.0, 1_500))
    assert choose(pairs, builder.profile, DEMANDS)["trend"].calibration.tau == 0.0
    strict = choose(pairs, builder.profile, Demands(0.02, 0.05, right=0.99))["trend"].calibration
    assert (strict.tau, strict.certified) == (2.25, True)
    assert strict.measured[0].right == 1.0


def test_confidence_is_careful_and_its_error_is_told_on_windows_it_was_not_fitted_on(
    make_pairs: Make, builder: TokenBuilder
) -> None:
    pairs = make_pairs(
        *PILOTS, *rows(SIMULATED, 5.0, 1_000), *rows(EARLIER, 5.0, 98, wrong=2), *rows(LATER, 5.0, 100, wrong=2)
    )
    chosen = choose(pairs, builder.profile, DEMANDS)["trend"]
    assert chosen.calibration.confidence[-1][1] == pytest.approx(0.97, abs=0.01)
    assert set(chosen.calibration_error) == {LATER}
    assert chosen.calibration_error[LATER] < 0.02


def test_a_class_with_its_own_distribution_only_has_no_risk_to_choose_by(
    make_pairs: Make, builder: TokenBuilder
) -> None:
    position = {"class": "position", "exact": True}
    pairs = make_pairs(
        *rows(SIMULATED, 0.1, 60, **position),
        *rows(SIMULATED, 3.0, 30, right=False, **position),
        *rows(SIMULATED, 3.0, 10, in_set=False, right=False, **position),
    )
    entry = choose(pairs, builder.profile, DEMANDS)["position"].calibration
    assert (entry.tau, entry.chosen) == (builder.profile.tau["position"], BY_CONSTRUCTION)
    (measured,) = entry.measured
    assert (measured.fired, measured.false_accepts) == (90, 0), "only the set test applies"
    assert measured.right == pytest.approx(2 / 3)
    assert entry.confidence == ()


def test_the_curve_splits_false_accepts_by_cause_and_judges_only_what_has_a_truth(
    make_pairs: Make, builder: TokenBuilder
) -> None:
    unsure = {"fast_answer": "down", "differs": True, "cause": "unsure", "right": None, "truth": None}
    pairs = make_pairs(
        *PILOTS, *rows(SIMULATED, 0.6, 10, wrong=3), *rows(SIMULATED, 5.0, 10), {"gap": 5.0} | unsure
    )
    curve = curve_of(pairs, choose(pairs, builder.profile, DEMANDS))
    assert curve["sample"].unique().to_list() == [SIMULATED], "the pilot is not reported"
    first, at_one = (curve.row(by_predicate=pl.col("tau") == tau, named=True) for tau in (0.0, 1.0))
    assert (first["fired"], first["false_accepts"], first["unsure"], first["divergence"]) == (21, 4, 1, 3)
    assert (at_one["fired"], at_one["unsure"], at_one["divergence"], at_one["judged"]) == (11, 1, 0, 10)
    assert first["right"] == pytest.approx(17 / 20)
    assert at_one["right"] == 1.0


def test_the_lower_envelope_is_the_smallest_curve_at_every_gap() -> None:
    first, second = ((0.0, 0.5), (2.0, 0.99)), ((0.0, 0.7), (1.0, 0.8), (3.0, 0.95))
    assert lower_envelope([first, second]) == ((0.0, 0.5), (2.0, 0.8), (3.0, 0.95))
    assert lower_envelope([first]) == first
    assert lower_envelope([]) == ()
