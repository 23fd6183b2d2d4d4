"""Questions to classes and keys."""

from __future__ import annotations

import dataclasses

import pytest

from stream_engine.decision.route import RoutedBy
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.questions.router import Router


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


@pytest.mark.parametrize(
    "question",
    [
        "So, AAPL: what's the trend right now, please?",
        "What is the trend of aapl?",
        "Trend over the last 32 bars",
        "hey, which way is AAPL heading at the moment",
    ],
)
def test_manners_and_the_sessions_own_name_change_nothing(question: str, router: Router) -> None:
    route = router.route(question, "AAPL")
    assert (route.question_class.name if route.question_class else None, route.by) == ("trend", RoutedBy.LISTED)
    assert router.route(question.replace("AAPL", "MSFT").replace("aapl", "msft"), "MSFT").generic


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Is the share price climbing or dropping?", None),  # "share" is a word that no wording has
        ("Is the price climbing or dropping?", "trend"),
        ("Which way are prices headed?", "trend"),
        ("What is the prevailing trend of the market?", "trend"),
        ("In what direction is the series drifting?", "trend"),
        ("Has it climbed or dropped?", "trend"),
        ("Is the price climbing?", None),
        ("Is it nearer to the top or the bottom of the range?", "position"),
        ("Is the move quickening or slackening?", "momentum"),
        ("Which way is MSFT headed?", None),
    ],
)
def test_unlisted_wordings_are_classified(question: str, name: str | None, router: Router) -> None:
    route = router.route(question, "AAPL")
    assert (route.question_class.name if route.question_class else None) == name
    assert route.by is (RoutedBy.NONE if name is None else RoutedBy.CLASSIFIER)


def test_the_classifier_gives_no_class_that_the_profile_lacks_or_words_otherwise(builder: TokenBuilder) -> None:
    question = "Is the price climbing or dropping?"
    trend = builder.profile.generic_class
    for other in (dataclasses.replace(trend, name="mood"), dataclasses.replace(trend, words=("up", "down"))):
        profile = dataclasses.replace(builder.profile, classes=(other,), tau={}, questions={})
        assert Router(profile).route(question).question_class is None
    profile = dataclasses.replace(builder.profile, classes=(trend,), tau={}, questions={})
    assert Router(profile).route(question).question_class is trend


def test_a_wording_that_two_classes_share_belongs_to_neither_with_manners(builder: TokenBuilder) -> None:
    questions = {"trend": ("Please, how is it now?",), "momentum": ("How is it?",)}
    router = Router(dataclasses.replace(builder.profile, questions=questions))
    assert router.route("so, how is it").question_class is None
    assert router.route("How is it").by is RoutedBy.LISTED
