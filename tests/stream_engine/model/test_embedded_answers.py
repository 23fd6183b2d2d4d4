"""The shipped weights: right where the gate fires, and answers that depend on the question."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from stream_engine.data.wordings import HELD_OUT
from stream_engine.model.profile import EMBEDDED, read_questions
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.training.evaluate import (
    EvaluationWindow,
    Judged,
    agreement,
    answer,
    load_network,
    rate,
    simulated_regions,
    windows_of,
)

BUILDER = TokenBuilder.load(EMBEDDED)
PROFILE = BUILDER.profile
HELD = read_questions(HELD_OUT)
UNSEEN_SEED = 90_210


@cache
def windows() -> tuple[EvaluationWindow, ...]:
    """One window of each of 330 simulated instruments that no training step drew, ten at every fill."""
    return tuple(windows_of(BUILDER, simulated_regions(BUILDER, 330, UNSEEN_SEED)))


def asked_of(name: str, question: str | None, among: tuple[EvaluationWindow, ...]) -> tuple[Judged, ...]:
    torch.set_num_threads(1)
    answer_class = next(answer_class for answer_class in PROFILE.classes if answer_class.name == name)
    return tuple(answer(load_network(EMBEDDED), BUILDER, among, answer_class, question))


@cache
def asked(name: str, question: str | None) -> tuple[Judged, ...]:
    return asked_of(name, question, windows())


@cache
def agreed(name: str) -> dict[str, float]:
    """Share of windows, one at each fill, in which a wording held out is answered like a listed one."""
    torch.set_num_threads(1)
    answer_class = next(answer_class for answer_class in PROFILE.classes if answer_class.name == name)
    return agreement(load_network(EMBEDDED), BUILDER, windows()[:33], answer_class, HELD[name])


def test_generic_header_is_right_where_the_gate_fires() -> None:
    fired = rate(asked("trend", None), PROFILE.tau["trend"])
    assert fired.fired >= 0.9 * fired.windows
    assert fired.right >= 0.96 * fired.fired
    assert {judged.word for judged in asked("trend", None)} == {"up", "down", "flat"}


@pytest.mark.parametrize(
    "answer_class",
    [answer_class for answer_class in PROFILE.classes if not answer_class.generic],
    ids=lambda answer_class: answer_class.name,
)
def test_the_answer_depends_on_the_question(answer_class) -> None:  # type: ignore[no-untyped-def]
    answers = asked_of(answer_class.name, PROFILE.questions[answer_class.name][0], windows()[:132])
    assert {answered.word for answered in answers} <= {*answer_class.words}
    fired = rate(answers, PROFILE.tau[answer_class.name])
    assert fired.right >= 0.93 * fired.fired
    assert fired.fired >= 0.8 * fired.windows


def test_the_question_and_the_generic_header_agree_where_the_gate_fires() -> None:
    tau = PROFILE.tau["trend"]
    pairs = zip(asked("trend", None), asked("trend", PROFILE.questions["trend"][0]), strict=True)
    fired = [(generic.word, question.word) for generic, question in pairs if generic.gap > tau]
    assert sum(generic == question for generic, question in fired) >= 0.98 * len(fired)


@pytest.mark.parametrize("name", [answer_class.name for answer_class in PROFILE.classes])
def test_wordings_never_trained_on_are_answered_like_a_listed_one(name: str) -> None:
    shares = agreed(name)
    assert set(shares) == set(HELD[name])
    assert np.mean(list(shares.values())) >= 0.95
    assert min(shares.values()) >= 0.7, shares


def test_questions_asked_together_are_answered_as_each_alone() -> None:
    answer_class = PROFILE.generic_class
    wordings = PROFILE.questions[answer_class.name][:3]
    shares = agreement(load_network(EMBEDDED), BUILDER, windows()[:33], answer_class, wordings[1:])
    alone = [[judged.word for judged in asked_of(answer_class.name, text, windows()[:33])] for text in wordings]
    assert list(shares.values()) == [np.mean(np.array(alone[0]) == np.array(other)) for other in alone[1:]]
