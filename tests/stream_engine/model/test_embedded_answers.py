"""The shipped weights: right where the gate fires, and answers that depend on the question."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from stream_engine.model.builder import TokenBuilder
from stream_engine.model.profile import EMBEDDED, read_questions
from stream_engine.training.evaluate import (
    Judged,
    Window,
    answer,
    load_network,
    rate,
    simulated_regions,
    windows_of,
)
from stream_engine.training.wordings import HELD_OUT

BUILDER = TokenBuilder.load(EMBEDDED)
PROFILE = BUILDER.profile
HELD = read_questions(HELD_OUT)
UNSEEN_SEED = 90_210


@cache
def windows() -> tuple[Window, ...]:
    """One window of each of 330 simulated instruments that no training step drew, ten at every fill."""
    return tuple(windows_of(BUILDER, simulated_regions(BUILDER, 330, UNSEEN_SEED)))


def asked_of(name: str, question: str | None, among: tuple[Window, ...]) -> tuple[Judged, ...]:
    torch.set_num_threads(1)
    one = next(one for one in PROFILE.classes if one.name == name)
    return tuple(answer(load_network(EMBEDDED), BUILDER, among, one, question))


@cache
def asked(name: str, question: str | None) -> tuple[Judged, ...]:
    return asked_of(name, question, windows())


@cache
def asked_once_a_fill(name: str, question: str) -> tuple[Judged, ...]:
    return asked_of(name, question, windows()[:33])


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


@pytest.mark.parametrize("question", HELD["trend"])
def test_a_wording_never_trained_on_is_answered_like_a_listed_one(question: str) -> None:
    listed = asked_once_a_fill("trend", PROFILE.questions["trend"][0])
    held = asked_once_a_fill("trend", question)
    same = sum(one.word == other.word for one, other in zip(listed, held, strict=True))
    assert same >= 0.9 * len(listed)


@pytest.mark.parametrize("name", [one.name for one in PROFILE.classes])
def test_wordings_never_trained_on_agree_with_listed_ones(name: str) -> None:
    listed = asked_once_a_fill(name, PROFILE.questions[name][0])
    same = [
        one.word == other.word
        for question in HELD[name]
        for one, other in zip(listed, asked_once_a_fill(name, question), strict=True)
    ]
    assert np.mean(same) >= 0.95
