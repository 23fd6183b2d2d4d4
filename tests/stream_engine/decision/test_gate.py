from __future__ import annotations

import dataclasses
import math

import pytest

from stream_engine.decision.gate import ClassGate, FastAnswer, Gate, GateReason
from stream_engine.decision.ready import ReadyDistribution, StateFlag

UP, DOWN, CALM, OTHER = 11, 12, 21, 99
TREND = "trend"


def gate(tau: float = 2.0, noise: float = 1e-3, *, is_open: bool = True) -> Gate:
    return Gate(
        classes={TREND: ClassGate(tau, is_open)},
        answers={
            UP: FastAnswer(TREND, "up"),
            DOWN: FastAnswer(TREND, "down"),
            CALM: FastAnswer("volatility", "calm"),
        },
        noise=noise,
    )


def ready(top1: int = UP, gap: float = 3.0) -> ReadyDistribution:
    return ReadyDistribution(top1, DOWN, gap, 9.0, 9.1, 0.99, 40)


def test_fires_with_the_word_of_the_top_token() -> None:
    decision = gate().decide(ready(), TREND)
    assert (decision.fires, decision.reason, decision.word) == (True, GateReason.FIRED, "up")
    assert (decision.question_class, decision.tau) == (TREND, 2.0)


@pytest.mark.parametrize(
    ("gap", "reason"),
    [
        (1.9, GateReason.GAP),
        (2.0 - 0.0009, GateReason.NOISE),
        (2.0, GateReason.NOISE),
        (2.0 + 0.0009, GateReason.NOISE),
        (2.0 + 0.0011, GateReason.FIRED),
        (math.nan, GateReason.GAP),
        (math.inf, GateReason.GAP),
    ],
)
def test_the_gap_must_pass_tau_by_more_than_the_noise(gap: float, reason: GateReason) -> None:
    assert gate().decide(ready(gap=gap), TREND).reason is reason


def test_without_noise_the_comparison_with_tau_is_strict() -> None:
    """Eq. 12 says gap > tau."""
    assert not gate(noise=0.0).decide(ready(gap=2.0), TREND).fires
    assert gate(noise=0.0).decide(ready(gap=math.nextafter(2.0, 3.0)), TREND).fires


def test_a_gap_that_is_off_by_just_the_noise_is_not_trusted() -> None:
    for gap in (1.5, 2.5):
        assert gate(noise=0.5).decide(ready(gap=gap), TREND).reason is GateReason.NOISE


def test_a_token_outside_the_set_never_fires() -> None:
    for exact in (False, True):
        decision = gate().decide(ready(top1=OTHER, gap=50.0), TREND, exact=exact)
        assert (decision.fires, decision.reason, decision.word) == (False, GateReason.NOT_IN_SET, None)


def test_an_answer_of_another_class_is_not_an_answer() -> None:
    decision = gate().decide(ready(top1=CALM), TREND)
    assert (decision.fires, decision.reason) == (False, GateReason.OTHER_CLASS)


def test_a_closed_class_does_not_fire_but_shows_its_word() -> None:
    decision = gate(is_open=False).decide(ready(), TREND)
    assert (decision.fires, decision.reason, decision.word) == (False, GateReason.CLOSED, "up")


def test_a_class_without_a_threshold_is_closed() -> None:
    assert gate().decide(ready(top1=CALM), "volatility").reason is GateReason.CLOSED


def test_exact_entries_take_the_set_test_only() -> None:
    decision = gate(is_open=False).decide(ready(gap=0.01), TREND, exact=True)
    assert (decision.fires, decision.word, decision.tau) == (True, "up", None)
    assert gate().decide(ready(top1=CALM, gap=0.01), None, exact=True).word == "calm"


def test_exact_entries_of_broken_logits_do_not_fire() -> None:
    assert not gate().decide(ready(gap=math.nan), TREND, exact=True).fires


@pytest.mark.parametrize("exact", [False, True])
def test_a_session_that_warms_up_has_no_fast_path(exact: bool) -> None:
    flags = StateFlag.WARMING_UP | StateFlag.INCOMPLETE
    assert gate().decide(ready(), TREND, exact=exact, flags=flags).reason is GateReason.WARMING_UP
    assert gate().decide(ready(), TREND, exact=exact, flags=StateFlag.INCOMPLETE).fires


@pytest.mark.parametrize("noise", [-1.0, math.nan, math.inf])
def test_refuses_a_noise_that_is_no_noise(noise: float) -> None:
    with pytest.raises(ValueError, match="noise"):
        gate(noise=noise)


def test_refuses_a_threshold_that_is_not_a_number() -> None:
    with pytest.raises(ValueError, match="tau"):
        gate(tau=math.nan)


def test_confidence_is_of_the_gap_and_of_the_class_asked() -> None:
    calibrated = dataclasses.replace(gate(), calibration="a1", confidence={TREND: ((0.0, 0.6), (3.0, 0.97))})
    assert calibrated.decide(ready(gap=2.9), TREND).confidence == 0.6
    assert calibrated.decide(ready(gap=3.0), TREND).confidence == 0.97
    for unknown in (ready(top1=OTHER), ready(top1=CALM)):
        assert calibrated.decide(unknown, TREND).confidence is None
    assert calibrated.decide(ready(top1=CALM), "volatility").confidence is None, "it has no curve"


def test_an_exact_entry_is_certain_to_agree_once_there_is_a_calibration() -> None:
    calibrated = dataclasses.replace(gate(), calibration="a1")
    assert calibrated.decide(ready(gap=0.01), TREND, exact=True).confidence == 1.0 == calibrated.certain
    assert gate().decide(ready(), TREND, exact=True).confidence is None
    assert gate().decide(ready(), TREND).confidence is None
    assert gate().certain is None
