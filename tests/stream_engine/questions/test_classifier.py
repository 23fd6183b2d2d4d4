"""The classifier's rules for abstaining, and its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stream_engine.questions.classifier import WEIGHTS, QuestionClassifier, features, packaged


def eager(**changes: object) -> QuestionClassifier:
    """One that gives ``trend`` to whatever the rules let through."""
    values: dict[str, object] = {
        "classes": (("trend", ("up", "down", "flat")), ("volume", ("rising", "falling", "steady"))),
        "index": {"trend": 0},
        "weights": np.zeros((1, 3), np.float32),
        "bias": np.array([9, 0, 0], np.float32),
        "vocabulary": (
            frozenset(["is", "it", "up", "or", "down", "what", "the", "trend", ","]),
            frozenset({"volume"}),
        ),
        "yes_or_no": frozenset({"volume"}),
        "thresholds": (0.9, 0.9),
    }
    return QuestionClassifier(**(values | changes))  # type: ignore[arg-type]


def test_a_sure_class_of_known_words_is_given() -> None:
    verdict = eager().classify(("is", "it", "up", "or", "down"))
    assert verdict.question_class == "trend"
    assert verdict.probability == pytest.approx(np.exp(9) / (np.exp(9) + 2))


@pytest.mark.parametrize(
    "words",
    [
        "is it up or sideways",  # a word that the class does not have
        "what is the volume",  # one that only another class has
        "is it up",  # yes or no
        "what is the trend , is it up or down",  # two questions
        "trend " * 25,
        "",
    ],
)
def test_it_abstains(words: str) -> None:
    assert eager().classify(tuple(words.split())).question_class is None


def test_as_many_words_as_a_question_may_have_are_judged() -> None:
    assert eager().classify(("trend",) * 24).question_class == "trend"


def test_it_abstains_below_the_threshold_of_the_class() -> None:
    words = ("what", "is", "the", "trend")
    unsure = eager(bias=np.array([1, 0, 0], np.float32))
    assert unsure.classify(words).question_class is None
    assert eager(bias=np.array([1, 0, 0], np.float32), thresholds=(0.5, 0.9)).classify(words).question_class
    none = eager(weights=np.array([[0, 0, 20]], np.float32))
    assert none.classify(words).question_class is None


def test_a_class_whose_wordings_ask_for_yes_or_no_may_be_asked_so() -> None:
    assert eager(yes_or_no=frozenset({"trend"})).classify(("is", "it", "up")).question_class == "trend"


def test_features_tell_the_order_of_words() -> None:
    assert features(("up", "or", "down")) != features(("down", "or", "up"))
    assert {"^ up", "down $", "up or down", "up .. down", "^ .. or"} <= features(("up", "or", "down"))


def test_the_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    made = packaged()
    made.save(tmp_path / "again.npz")
    again = QuestionClassifier.load(tmp_path / "again.npz")
    assert (again.classes, again.index, again.vocabulary) == (made.classes, made.index, made.vocabulary)
    assert (again.yes_or_no, again.thresholds) == (made.yes_or_no, made.thresholds)
    assert np.array_equal(again.weights, made.weights)
    assert np.array_equal(again.bias, made.bias)


def test_the_packaged_weights_are_small_and_the_generic_class_takes_no_yes_or_no() -> None:
    assert WEIGHTS.stat().st_size < 1_000_000
    assert "trend" not in packaged().yes_or_no
