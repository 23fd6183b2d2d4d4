"""Every change once, in order: what supersedes what, and what waits until it is written."""

from __future__ import annotations

from typing import Any

import pytest

from stream_engine.messages import AnswerChanged, AnswerGone
from stream_engine.process.answer_outbox import Outbox
from stream_engine.session.session import Source
from stream_engine.standing.answer_book import AnswerBook

SOURCE = Source("bars", 0)


def answer(version: int = 1, word: str = "up", **changes: Any) -> AnswerChanged:
    values: dict[str, Any] = {
        "session": "AAPL", "query": "q", "question": "?", "topic": "bars", "partition": 0, **changes
    }  # fmt: skip
    return AnswerChanged(
        answer=word, previous=None, initial=False, class_="trend", gap=1.0, confidence=None,
        session_version=version, offset=version - 1, event_time=None, **values,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "news"),
    [
        (answer(5), answer(6), True),
        (answer(5), answer(5), False),
        (answer(5), answer(5, "down"), False),
        (answer(5), answer(4, "down"), False),
        (answer(5), answer(5, question="another"), True),
        (answer(5), answer(4, question="another"), False),
        (answer(5), answer(1, topic="trades"), True),
        (answer(5), answer(1, partition=1), True),
        (answer(5), answer(1, session="MSFT"), True),
        (answer(5), answer(1, query="p"), True),
    ],
)
def test_what_is_news(first: AnswerChanged, second: AnswerChanged, news: bool) -> None:
    book = AnswerBook()
    assert book.note(first)
    assert book.note(second) is news
    newest = second if news else first
    assert book.get(newest.session, newest.query) == newest


def test_what_was_discarded_is_told_anew() -> None:
    book = AnswerBook()
    book.note(answer(5))
    assert book.discard("AAPL", "q")
    assert not book.discard("AAPL", "q")
    assert book.note(answer(5))
    book.forget_query("q")
    assert book.all() == ()


def test_the_outbox_hands_out_each_answer_once_and_again_to_a_new_owner_until_it_is_written() -> None:
    outbox = Outbox()
    first, second, third = answer(1), answer(2), AnswerGone("AAPL", "q", "bars", 0, 1)
    outbox.add(first)
    outbox.add(second)
    [(source, number, answers)] = outbox.take()
    assert (source, answers) == (SOURCE, (first, second))
    assert outbox.take() == []

    outbox.add(third)
    outbox.written(SOURCE, number - 1)
    outbox.again(SOURCE)
    [(_, last, answers)] = outbox.take()
    assert answers == (second, third)
    outbox.written(SOURCE, last)
    outbox.again(SOURCE)
    assert (outbox.take(), len(outbox)) == ([], 0)


def test_the_outbox_keeps_partitions_apart_and_knows_no_pushed_sessions() -> None:
    outbox = Outbox()
    outbox.add(answer(1))
    outbox.add(answer(1, partition=1))
    outbox.add(answer(1, topic=None, partition=None))
    assert {source for source, _, _ in outbox.take()} == {SOURCE, Source("bars", 1)}
    outbox.drop(SOURCE)
    outbox.again(SOURCE)
    outbox.again(Source("bars", 1))
    assert [source for source, _, _ in outbox.take()] == [Source("bars", 1)]
