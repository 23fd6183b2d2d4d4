"""Questions to classes and keys."""

from __future__ import annotations

import pytest

from stream_engine.model.builder import TokenBuilder
from stream_engine.router import Router


@pytest.fixture
def router(builder: TokenBuilder) -> Router:
    return Router(builder.profile)


def test_every_listed_wording_is_routed(router: Router, builder: TokenBuilder) -> None:
    for name, wordings in builder.profile.questions.items():
        assert wordings
        for wording in wordings:
            for asked in (wording, wording.upper(), f"  {wording}\n", wording.rstrip("?") + " ?!"):
                route = router.route(asked)
                assert route.question_class is not None, asked
                assert route.question_class.name == name


def test_the_key_is_the_exact_question(router: Router) -> None:
    assert router.route(" What is\tthe trend? ").key == "What is the trend?"
    assert router.route("WHAT IS THE TREND?").key == "WHAT IS THE TREND?"


@pytest.mark.parametrize(
    "question", ["", "?", "   ", "What is the price?", "trend" * 1000, "What is the trend, not?"]
)
def test_other_questions_have_no_class(question: str, router: Router) -> None:
    route = router.route(question)
    assert route.question_class is None
    assert not route.generic


def test_a_refusal_names_what_can_be_asked(router: Router, builder: TokenBuilder) -> None:
    refusal = router.refusal()
    assert builder.profile.name in refusal
    for answer_class in builder.profile.classes:
        assert "/".join(answer_class.words) in refusal
        assert builder.profile.questions[answer_class.name][0] in refusal


def test_the_generic_class_is_the_profiles(router: Router, builder: TokenBuilder) -> None:
    generic = builder.profile.generic_class
    assert router.route(builder.profile.questions[generic.name][0]).generic
