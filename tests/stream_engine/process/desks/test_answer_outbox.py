"""Answers for their topic: each is handed out once, and again until it is known to be written."""

from __future__ import annotations

from typing import Any

from stream_engine.messages import AnswerChanged, AnswerGone
from stream_engine.process.desks.answer_outbox import AnswerOutbox
from stream_engine.session.session import Source

SOURCE = Source("bars", 0)


def answer(version: int, topic: str | None = "bars", partition: int | None = 0) -> AnswerChanged:
    values: dict[str, Any] = {"gap": 1.0, "confidence": None, "event_time": None, "class_": "trend"}
    return AnswerChanged(
        session="AAPL",
        query="q",
        question="?",
        answer="up",
        previous=None,
        initial=True,
        session_version=version,
        topic=topic,
        partition=partition,
        offset=version - 1,
        **values,
    )


def test_the_outbox_hands_out_each_answer_once_and_again_to_a_new_owner_until_it_is_written() -> None:
    outbox = AnswerOutbox()
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
    outbox = AnswerOutbox()
    outbox.add(answer(1))
    outbox.add(answer(1, partition=1))
    outbox.add(answer(1, topic=None, partition=None))
    assert {source for source, _, _ in outbox.take()} == {SOURCE, Source("bars", 1)}
    outbox.drop(SOURCE)
    outbox.again(SOURCE)
    outbox.again(Source("bars", 1))
    assert [source for source, _, _ in outbox.take()] == [Source("bars", 1)]
