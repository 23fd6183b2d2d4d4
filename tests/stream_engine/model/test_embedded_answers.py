"""The shipped weights: right where the gate fires, and answers that depend on the question."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from stream_engine.model.builder import TokenBuilder
from stream_engine.model.profile import EMBEDDED, read_questions
from stream_engine.training.evaluate import Judged, Region, Window, answer, load_network, rate, windows_of
from stream_engine.training.simulate import simulate
from stream_engine.training.wordings import HELD_OUT, draw_symbol

BUILDER = TokenBuilder.load(EMBEDDED)
PROFILE = BUILDER.profile
HELD = read_questions(HELD_OUT)
UNSEEN_SEED = 90_210


@cache
def windows() -> tuple[Window, ...]:
    """One window of each of 330 simulated instruments that no training step drew, ten at every fill."""
    rng = np.random.default_rng(UNSEEN_SEED)
    bars = simulate(rng, 330, 64)
    regions = [Region("simulated", draw_symbol(rng), bars.series(row)[: 32 + row % 33]) for row in range(330)]
    return tuple(windows_of(BUILDER, regions))


@cache
def asked(name: str, question: str | None) -> tuple[Judged, ...]:
    torch.set_num_threads(1)
    one = next(one for one in PROFILE.classes if one.name == name)
    return tuple(answer(load_network(EMBEDDED), BUILDER, windows(), one, question))


def test_generic_header_is_right_where_the_gate_fires() -> None:
    fired = rate(asked("trend", None), PROFILE.tau["trend"])
    assert fired.fired >= 0.9 * fired.windows
    assert fired.right >= 0.96 * fired.fired
    assert {one.word for one in asked("trend", None)} == {"up", "down", "flat"}


@pytest.mark.parametrize("one", [one for one in PROFILE.classes if not one.generic], ids=lambda one: one.name)
def test_the_answer_depends_on_the_question(one) -> None:  # type: ignore[no-untyped-def]
    answers = asked(one.name, PROFILE.questions[one.name][0])
    assert {answered.word for answered in answers} <= {*one.words}
    fired = rate(answers, PROFILE.tau[one.name])
    assert fired.right >= 0.93 * fired.fired
    assert fired.fired >= 0.8 * fired.windows


def test_the_question_and_the_generic_header_agree_where_the_gate_fires() -> None:
    tau = PROFILE.tau["trend"]
    pairs = zip(asked("trend", None), asked("trend", PROFILE.questions["trend"][0]), strict=True)
    fired = [(generic.word, question.word) for generic, question in pairs if generic.gap > tau]
    assert sum(generic == question for generic, question in fired) >= 0.98 * len(fired)


@pytest.mark.parametrize("question", HELD_OUT["trend"])
def test_a_wording_never_trained_on_is_answered_like_a_listed_one(question: str) -> None:
    listed = asked("trend", PROFILE.questions["trend"][0])
    held = asked("trend", question)
    same = sum(one.word == other.word for one, other in zip(listed, held, strict=True))
    assert same >= 0.9 * len(listed)


def test_wordings_never_trained_on_agree_with_listed_ones() -> None:
    for name in (one.name for one in PROFILE.classes):
        listed = asked(name, PROFILE.questions[name][0])
        same = [
            one.word == other.word
            for question in HELD_OUT[name]
            for one, other in zip(listed, asked(name, question), strict=True)
        ]
        assert np.mean(same) >= 0.95
