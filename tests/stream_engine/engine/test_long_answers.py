"""Answers of several tokens, decoded step by step while data goes on coming in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stream_engine.messages import Answer, Query, Record
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.profile import EMBEDDED, Profile
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.model.render.tokenizer import load_tokenizer

TREND, MOMENTUM = "What is the trend?", "What is the momentum?"
BEFORE = 4
"""Tokens that this model says before a word of the class."""


@pytest.fixture(scope="module")
def builder() -> TokenBuilder:
    profile = replace(Profile.load(EMBEDDED), max_answer_tokens=BEFORE + 4)
    return TokenBuilder(profile, load_tokenizer(EMBEDDED))


@pytest.fixture
def talkative(fed: Callable[..., Any]) -> Callable[..., Any]:
    """A model that says some tokens, each told by all before it, and then a word that is too."""

    def make(**options: Any) -> Any:
        bench = fed(bars=40, **options)
        known = {*bench.builder.answers, bench.builder.end_token}
        fillers = [token for token in range(bench.builder.vocab_size) if token not in known]
        one_word = bench.runner.predict
        entries = [bench.builder.query_entry(question) for question in (TREND, MOMENTUM)]

        def predict(path: Sequence[int]) -> Distribution:
            said = next(
                (n for n in range(BEFORE) for entry in entries if ends_with(path[: len(path) - n], entry)), BEFORE
            )
            found = one_word(path)
            return found if said == BEFORE else replace(found, top1=fillers[int(found.gap * 100) % len(fillers)])

        bench.runner.predict = predict
        return bench

    return make


def ends_with(path: Sequence[int], entry: tuple[int, ...]) -> bool:
    return tuple(path[-len(entry) :]) == entry


def greedy(bench: Any, tokens: list[int], question: str) -> list[int]:
    """The whole answer on these tokens, from scratch."""
    said: list[int] = []
    while not said or said[-1] not in bench.builder.answers:
        said.append(bench.runner.predict([*tokens, *bench.builder.query_entry(question), *said]).top1)
    return said


@pytest.mark.parametrize("commit_every", [1, 2, 4])
@pytest.mark.parametrize("decoded", [1, 2, BEFORE])
def test_a_commit_waits_for_the_answer_that_is_being_decoded(
    decoded: int, commit_every: int, talkative: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = talkative(commit_every=commit_every)
    session = bench.engine.sessions["AAPL"]
    version, tokens = session.version, list(session.tokens)
    bench.engine.queries.ask(Query("AAPL", TREND, "full"), bench.replies.append)
    for _ in range(decoded):
        assert bench.engine.step()
    (work,) = bench.engine.scheduler.queries
    assert len(work.generated) == decoded
    bench.feed([make_record("AAPL", 40)], 39, run=False)
    while bench.engine.scheduler.queries:
        assert session.tokens == tokens, "the answer's session moved under it"
        assert bench.engine.step()
    said = greedy(bench, tokens, TREND)
    assert work.generated == said
    assert len(said) == BEFORE + 1
    (answer,) = bench.replies
    assert isinstance(answer, Answer)
    assert answer.session_version == version
    bench.engine.run_until_idle()
    bench.engine.check_integrity()
    assert session.version == version + 1
    assert session.ready[""].gap == bench.expected("AAPL").gap


def test_two_answers_and_a_commit_of_one_session(
    talkative: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """The second question comes when the first is half answered, the data between them."""
    bench = talkative(commit_every=1)
    session = bench.engine.sessions["AAPL"]
    tokens = list(session.tokens)
    bench.engine.queries.ask(Query("AAPL", TREND, "full"), bench.replies.append)
    assert bench.engine.step()
    works = list(bench.engine.scheduler.queries)
    bench.feed([make_record("AAPL", 40)], 39, run=False)
    bench.engine.queries.ask(Query("AAPL", MOMENTUM, "full"), bench.replies.append)
    works += list(bench.engine.scheduler.queries)[1:]
    bench.engine.run_until_idle()
    bench.engine.check_integrity()
    at = {40: tokens, 41: session.tokens}
    assert len(bench.replies) == 2
    for reply in bench.replies:
        (work,) = [work for work in works if work.query.question == reply.question]
        assert work.generated == greedy(bench, at[reply.session_version], reply.question)


def test_a_session_whose_answer_is_being_decoded_keeps_its_cells(
    talkative: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """Cells for one session: a question to the other one waits, in the steps of the first as well."""
    bench = talkative(sessions=1)
    bench.feed([make_record("OTHER", 40 + number, number) for number in range(40)], 39)
    tokens = {name: list(bench.engine.sessions[name].tokens) for name in ("AAPL", "OTHER")}
    bench.engine.queries.ask(Query("AAPL", TREND, "full"), bench.replies.append)
    assert bench.engine.step()
    bench.engine.queries.ask(Query("OTHER", TREND, "full"), bench.replies.append)
    works = list(bench.engine.scheduler.queries)
    while not bench.replies:
        assert bench.engine.budget.resident == ("AAPL",)
        assert bench.engine.step()
    bench.engine.run_until_idle()
    assert [reply.session for reply in bench.replies] == ["AAPL", "OTHER"]
    for work in works:
        assert work.generated == greedy(bench, tokens[work.query.session], TREND)
    bench.engine.check_integrity()


def test_an_older_question_does_not_take_the_cells_of_an_answer_that_is_being_decoded(
    talkative: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """One that waited while commits in progress had all cells comes first in the queue afterwards."""
    bench = talkative(sessions=1)
    bench.feed([make_record("OTHER", 40 + number, number) for number in range(40)], 39)
    tokens = list(bench.engine.sessions["AAPL"].tokens)
    bench.engine.queries.ask(Query("AAPL", TREND, "full"), bench.replies.append)
    assert bench.engine.step()
    bench.engine.queries.ask(Query("OTHER", TREND, "full"), bench.replies.append)
    queue = bench.engine.scheduler._queries
    queue.insert(0, queue.pop())
    (work,) = [work for work in queue if work.generated]
    while not bench.replies:
        assert bench.engine.budget.resident == ("AAPL",)
        assert bench.engine.step()
    bench.engine.run_until_idle()
    assert [reply.session for reply in bench.replies] == ["AAPL", "OTHER"]
    assert work.generated == greedy(bench, tokens, TREND)
    bench.engine.check_integrity()
