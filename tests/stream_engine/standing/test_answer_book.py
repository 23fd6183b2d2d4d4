"""Every change once, in order: what supersedes what."""

from __future__ import annotations

from typing import Any

import pytest

from stream_engine.messages import AnswerChanged
from stream_engine.standing.answer_book import AnswerBook


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
