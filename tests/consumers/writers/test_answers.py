"""The sink: what is written, confirmed and held, with a producer that does what the test says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka.errors import IllegalStateError, KafkaTimeoutError, TopicAuthorizationFailedError

from consumers.kafka.producer import WriteRefused
from consumers.kafka.source import SourcePartition
from consumers.writers import spool
from consumers.writers.answers import AnswerSink
from consumers.writers.spool import Confirmation
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import AnswerChanged, AnswerGone, Evaluations
from stream_engine.standing.answer_book import AnswerBook
from tests.support.played_producer import PlayedProducer, renewed

SOURCE = SourcePartition("bars", 3)


class Bench:
    def __init__(self) -> None:
        self.producer, self.book = PlayedProducer(), AnswerBook()
        self.sink = AnswerSink(KafkaSettings(), self.book, self.producer.make)

    def take(self, number: int, *answers: AnswerChanged | AnswerGone) -> list[int]:
        return self.sink.take(
            Evaluations(boot_id="boot", topic="bars", partition=3, generation=77, number=number, answers=answers)
        )

    def values(self) -> list[Any]:
        """What was sent: the answers, None for a tombstone."""
        return [sent.value and json.loads(sent.value) for sent in self.producer.sent]

    def versions(self) -> list[int]:
        return [value["session_version"] for value in self.values()]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(spool, "RETRY_AFTER_S", 0.0)
    return Bench()


def answer(version: int, session: str = "AAPL") -> AnswerChanged:
    return AnswerChanged(
        session=session, query="q", question="?", answer="up", previous="down", initial=False, class_="trend",
        gap=1.0, confidence=None,
        session_version=version, topic="bars", partition=3, offset=version - 1, event_time=None,
    )  # fmt: skip


def test_answers_are_written_under_their_key_and_confirmed_in_order(bench: Bench) -> None:
    assert bench.take(9, answer(5), answer(6)) == [4, 5]
    assert bench.sink.spool.confirmed() == []
    first, second = bench.producer.sent
    value = bench.values()[0]
    assert first.key == b"AAPL|q"
    assert (value["answer"], value["previous"], value["class"]) == ("up", "down", "trend")
    assert value["session_version"] == 5
    second.succeed()
    assert (bench.sink.spool.confirmed(), bench.sink.spool.pending) == ([], 2)
    first.succeed()
    assert bench.sink.spool.confirmed() == [Confirmation("bars", 3, 77, 4, 0), Confirmation("bars", 3, 77, 5, 9)]
    assert (bench.sink.spool.confirmed(), bench.sink.spool.pending) == ([], 0)


def test_what_the_topic_has_already_is_confirmed_without_being_written(bench: Bench) -> None:
    bench.book.note(answer(6))
    bench.take(9, answer(5), answer(6), answer(7))
    assert bench.sink.spool.confirmed() == [Confirmation("bars", 3, 77, 4, 0), Confirmation("bars", 3, 77, 5, 0)]
    assert bench.versions() == [7]
    assert (bench.sink.repeated, bench.sink.spool.pending) == (2, 1)


def test_a_withdrawn_answer_becomes_a_tombstone_once(bench: Bench) -> None:
    gone = AnswerGone("AAPL", "q", "bars", 3, 4)
    bench.take(1, answer(5), gone, gone, answer(5))
    bench.sink.spool.confirmed()
    assert [value and value["session_version"] for value in bench.values()] == [5, None, 5]


def test_a_full_producer_is_tried_again_in_order(bench: Bench) -> None:
    bench.producer.refuse = KafkaTimeoutError("no memory")
    bench.take(2, answer(5), answer(6))
    assert bench.sink.spool.confirmed() == []
    bench.producer.refuse = None
    bench.sink.spool.confirmed()
    assert bench.versions() == [5, 6]


def test_an_answer_that_failed_is_written_again_before_it_is_confirmed(bench: Bench) -> None:
    bench.take(2, answer(5))
    bench.sink.spool.confirmed()
    bench.producer.sent[0].fail(KafkaTimeoutError("gone"))
    assert renewed(bench.sink) == []
    assert bench.versions() == [5, 5]
    bench.producer.sent[1].succeed()
    assert bench.sink.spool.confirmed() == [Confirmation("bars", 3, 77, 4, 2)]


def test_what_a_key_got_after_an_answer_that_failed_is_written_again_behind_it(bench: Bench) -> None:
    bench.take(3, answer(5), answer(6, "MSFT"), answer(6), answer(7))
    bench.sink.spool.confirmed()
    first, other, second, third = bench.producer.sent
    other.succeed()
    second.succeed()
    first.fail(KafkaTimeoutError("gone"))
    assert renewed(bench.sink) == []
    pairs = zip(bench.producer.sent, bench.versions(), strict=True)
    assert [version for sent, version in pairs if sent.key == b"AAPL|q"] == [5, 6, 7] * 2
    assert len(bench.producer.sent) == 7, "the other key's answer is there"
    assert third.future.exception is not None, "it is not written a third time"
    for sent in bench.producer.sent[4:]:
        sent.succeed()
    assert [done.offset for done in bench.sink.spool.confirmed()] == [4, 5, 5, 6]
    assert bench.sink.spool.pending == 0


def test_many_answers_that_failed_are_tried_again_together(bench: Bench) -> None:
    bench.take(3, answer(5), answer(6, "MSFT"), answer(7, "TSLA"))
    bench.sink.spool.confirmed()
    for sent in bench.producer.sent:
        sent.fail(KafkaTimeoutError("gone"))
    renewed(bench.sink)
    assert bench.versions() == [5, 6, 7] * 2


def test_an_answer_that_may_not_be_written_ends_the_consumer(bench: Bench) -> None:
    bench.take(2, answer(5))
    bench.sink.spool.confirmed()
    bench.producer.sent[0].fail(TopicAuthorizationFailedError("stream-engine.answers"))
    with pytest.raises(WriteRefused, match=r"stream-engine.answers cannot be written.*right to write"):
        bench.sink.spool.confirmed()


def test_a_partition_that_left_gets_nothing_more_written_and_the_book_knows(bench: Bench) -> None:
    bench.take(1, answer(5))
    bench.sink.spool.confirmed()
    bench.producer.refuse = KafkaTimeoutError("no memory")
    bench.take(3, answer(6), answer(7), answer(8, "MSFT"))
    bench.sink.spool.forget(SOURCE)
    bench.producer.refuse = None
    bench.sink.spool.confirmed()
    assert bench.versions() == [5]
    told = bench.book.get("AAPL", "q")
    assert told is not None
    assert told.session_version == 5
    assert bench.book.get("MSFT", "q") is None
    bench.producer.sent[0].succeed()
    assert len(bench.sink.spool.confirmed()) == 1
    bench.take(4, answer(6), answer(7))  # it comes back
    bench.sink.spool.confirmed()
    assert bench.versions() == [5, 6, 7]


def test_what_fails_after_its_partition_left_is_not_written_again(bench: Bench) -> None:
    bench.take(1, answer(4))
    bench.sink.spool.confirmed()
    bench.producer.sent[0].succeed()
    bench.sink.spool.confirmed()
    bench.take(2, answer(5), answer(6))
    bench.sink.spool.confirmed()
    bench.sink.spool.forget(SOURCE)
    for sent in bench.producer.sent[1:]:
        sent.fail(KafkaTimeoutError("gone"))
    assert renewed(bench.sink) == []
    assert (bench.versions(), bench.sink.spool.pending) == ([4, 5, 6], 0)
    told = bench.book.get("AAPL", "q")
    assert told is not None
    assert told.session_version == 4


def test_what_is_on_its_way_for_long_when_its_partition_leaves_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.take(2, answer(5))
    bench.sink.spool.confirmed()
    future = bench.producer.sent[0].future
    bench.sink.spool.forget(SOURCE)
    assert not future.is_done
    monkeypatch.setattr(spool, "CUT_OFF_AFTER_S", -1.0)
    bench.sink.spool.forget(SOURCE)
    assert isinstance(future.exception, IllegalStateError)
    renewed(bench.sink)
    assert (bench.versions(), bench.sink.spool.pending) == ([5], 0)
