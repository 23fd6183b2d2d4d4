"""The router's own errors, on questions written by hand that it was not made with.

``pytest -s tests/stream_engine/questions/test_router_errors.py`` prints them by kind of question.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import stream_engine.data
from stream_engine.model.profile import EMBEDDED, Profile, read_questions
from stream_engine.questions.classifier import OTHER
from stream_engine.questions.core import core
from stream_engine.questions.router import Router
from stream_engine.training.router_data import expansions
from stream_engine.util.intervals import wilson

OFF_CLASS = read_questions(Path(__file__).parent / "off_class_questions.txt")
BLIND = read_questions(Path(__file__).parent / "blind_questions.txt")["blind"]
HELD_OUT = read_questions(Path(stream_engine.data.__file__).parent / "held_out.txt")
SESSION = "AAPL"


@pytest.fixture(scope="module")
def fresh() -> dict[str, list[str]]:
    """By kind, the questions that no template of the router's training can make."""
    taught = {words for texts in expansions(frozenset((*HELD_OUT, OTHER))).values() for words in texts}
    assert len(taught) > 10_000
    return {
        kind: [question for question in questions if core(question, SESSION) not in taught]
        for kind, questions in OFF_CLASS.items()
    }


def test_off_class_questions_do_not_take_the_fast_path(fresh: dict[str, list[str]]) -> None:
    profile = Profile.load(EMBEDDED)
    router, generic = Router(profile), profile.generic_class.name
    total = fast = wrong = 0
    print(f"\n{'kind':18} {'asked':>5} {'generic':>7} {'another':>7} {'refused':>7}")
    for kind, questions in fresh.items():
        routes = [router.route(question, SESSION).question_class for question in questions]
        taken = [route.name for route in routes if route is not None]
        to_generic = 0 if kind == generic else taken.count(generic)
        another = len(taken) - taken.count(kind) - to_generic
        total, fast, wrong = total + len(routes), fast + to_generic, wrong + to_generic + another
        print(f"{kind:18} {len(routes):5} {to_generic:7} {another:7} {routes.count(None):7}")
    low, high = wilson(fast, total)
    print(f"{fast} of {total} would take the fast path [{max(0, low):.4f}, {high:.4f}]")
    print(f"{wrong} are taken by a class that is not theirs")
    assert total >= 200
    assert len(fresh) >= 10
    assert all(fresh.values())
    assert fast <= 0.01 * total
    assert wrong <= 0.01 * total


def test_questions_by_somebody_who_knew_nothing_of_the_router_do_not_take_the_fast_path() -> None:
    router = Router(Profile.load(EMBEDDED))
    taken = [question for question in BLIND if router.route(question, SESSION).question_class is not None]
    low, high = wilson(len(taken), len(BLIND))
    print(f"\n{len(taken)} of {len(BLIND)} are taken by a class [{max(0, low):.4f}, {high:.4f}]: {taken}")
    assert len(BLIND) >= 200
    assert len(taken) <= 0.01 * len(BLIND)


def test_the_taught_ones_among_them_are_refused_too(fresh: dict[str, list[str]]) -> None:
    profile = Profile.load(EMBEDDED)
    router = Router(profile)
    taught = {kind: set(questions) - set(fresh[kind]) for kind, questions in OFF_CLASS.items()}
    for kind, questions in taught.items():
        for question in questions:
            route = router.route(question, SESSION).question_class
            assert route is None or route.name == kind, question


def test_the_questions_are_hard_for_a_router_of_words() -> None:
    words = {"trend", "up", "down", "rising", "falling", "direction", "way"}
    asked = [question for kind, questions in OFF_CLASS.items() for question in questions]
    assert sum(bool(words & set(core(question) or ())) for question in asked) > 0.3 * len(asked)


def test_held_out_wordings_come_to_their_class_or_to_none() -> None:
    profile = Profile.load(EMBEDDED)
    router = Router(profile)
    right = wrong = total = 0
    for name in [answer_class.name for answer_class in profile.classes if answer_class.name in HELD_OUT]:
        routes = [router.route(question, SESSION).question_class for question in HELD_OUT[name]]
        own = sum(route is not None and route.name == name for route in routes)
        right, total = right + own, total + len(routes)
        wrong += len(routes) - own - routes.count(None)
        print(f"\n{name:18} {own} of {len(routes)} routed to it, {routes.count(None)} refused", end="")
    print(f"\n{right} of {total} held-out wordings routed to their class, {wrong} to another")
    assert right >= 0.7 * total
    assert wrong <= 0.01 * total
