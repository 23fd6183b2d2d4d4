"""The sink: what is written, confirmed and held, with a producer that does what the test says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka.errors import IllegalStateError, KafkaTimeoutError, TopicAuthorizationFailedError

from consumers.kafka.producer import WriteRefused
from consumers.kafka.source import SourcePartition
from consumers.writers import answers as module
from consumers.writers.answers import AnswerSink
from consumers.writers.dead_letter import Confirmation
from stream_engine.config import KafkaSettings
from stream_engine.messages import AnswerChanged, AnswerGone, Evaluations
from stream_engine.standing.answer_book import AnswerBook

SOURCE = SourcePartition("bars", 3)


class Future:
    def __init__(self) -> None:
        self.exception: BaseException | None = None
        self.is_done = False

    def failed(self) -> bool:
        return self.exception is not None

    def succeeded(self) -> bool:
        return self.is_done and self.exception is None

    def end(self, error: BaseException | None = None) -> None:
        self.is_done, self.exception = True, error


class Producer:
    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Any, Future]] = []
        self.away = False
        self._sender = self

    def force_close(self) -> None:
        for _, _, future in self.sent:
            if not future.is_done:
                future.end(IllegalStateError("given up"))

    def join(self, timeout: float) -> None:
        pass

    def close(self, timeout: float) -> None:
        pass

    def send(self, topic: str, key: bytes, value: bytes | None) -> Future:
        if self.away:
            raise KafkaTimeoutError("no memory")
        future = Future()
        self.sent.append((key, None if value is None else json.loads(value), future))
        return future


class Bench:
    def __init__(self) -> None:
        self.producer, self.book = Producer(), AnswerBook()
        self.sink = AnswerSink(KafkaSettings(), self.book, lambda: self.producer)

    def renewed(self) -> list[Confirmation]:
        """What is confirmed, and sent, once there is another producer in the place of one that failed."""
        done = self.sink.confirmed()
        while not self.sink._producer.ready():
            pass
        return done + self.sink.confirmed()

    def take(self, number: int, *answers: AnswerChanged | AnswerGone) -> list[int]:
        return self.sink.take(Evaluations("boot", "bars", 3, 77, number, answers))

    def versions(self) -> list[int]:
        return [value["session_version"] for _, value, _ in self.producer.sent]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(module, "RETRY_AFTER_S", 0.0)
    return Bench()


def answer(version: int, session: str = "AAPL") -> AnswerChanged:
    return AnswerChanged(
        session, "q", "?", "up", "down", False, class_="trend", gap=1.0, confidence=None,
        session_version=version, topic="bars", partition=3, offset=version - 1, event_time=None,
    )  # fmt: skip


def test_answers_are_written_under_their_key_and_confirmed_in_order(bench: Bench) -> None:
    assert bench.take(9, answer(5), answer(6)) == [4, 5]
    assert bench.sink.confirmed() == []
    (key, value, first), (_, _, second) = bench.producer.sent
    assert key == b"AAPL|q"
    assert (value["answer"], value["previous"], value["class"]) == ("up", "down", "trend")
    assert value["session_version"] == 5
    second.end()
    assert (bench.sink.confirmed(), bench.sink.pending) == ([], 2)
    first.end()
    assert bench.sink.confirmed() == [Confirmation("bars", 3, 77, 4, 0), Confirmation("bars", 3, 77, 5, 9)]
    assert (bench.sink.confirmed(), bench.sink.pending) == ([], 0)


def test_what_the_topic_has_already_is_confirmed_without_being_written(bench: Bench) -> None:
    bench.book.note(answer(6))
    bench.take(9, answer(5), answer(6), answer(7))
    assert bench.sink.confirmed() == [Confirmation("bars", 3, 77, 4, 0), Confirmation("bars", 3, 77, 5, 0)]
    assert bench.versions() == [7]
    assert (bench.sink.repeated, bench.sink.pending) == (2, 1)


def test_a_withdrawn_answer_becomes_a_tombstone_once(bench: Bench) -> None:
    gone = AnswerGone("AAPL", "q", "bars", 3, 4)
    bench.take(1, answer(5), gone, gone, answer(5))
    bench.sink.confirmed()
    assert [value and value["session_version"] for _, value, _ in bench.producer.sent] == [5, None, 5]


def test_a_full_producer_is_tried_again_in_order(bench: Bench) -> None:
    bench.producer.away = True
    bench.take(2, answer(5), answer(6))
    assert bench.sink.confirmed() == []
    bench.producer.away = False
    bench.sink.confirmed()
    assert bench.versions() == [5, 6]


def test_an_answer_that_failed_is_written_again_before_it_is_confirmed(bench: Bench) -> None:
    bench.take(2, answer(5))
    bench.sink.confirmed()
    bench.producer.sent[0][2].end(KafkaTimeoutError("gone"))
    assert bench.renewed() == []
    assert bench.versions() == [5, 5]
    bench.producer.sent[1][2].end()
    assert bench.sink.confirmed() == [Confirmation("bars", 3, 77, 4, 2)]


def test_what_a_key_got_after_an_answer_that_failed_is_written_again_behind_it(bench: Bench) -> None:
    bench.take(3, answer(5), answer(6, "MSFT"), answer(6), answer(7))
    bench.sink.confirmed()
    first, other, second, third = (future for _, _, future in bench.producer.sent)
    for future in (other, second):
        future.end()
    first.end(KafkaTimeoutError("gone"))
    assert bench.renewed() == []
    assert [value["session_version"] for key, value, _ in bench.producer.sent if key == b"AAPL|q"] == [5, 6, 7] * 2
    assert len(bench.producer.sent) == 7, "the other key's answer is there"
    assert third.exception is not None, "it is not written a third time"
    for _, _, future in bench.producer.sent[4:]:
        future.end()
    assert [done.offset for done in bench.sink.confirmed()] == [4, 5, 5, 6]
    assert bench.sink.pending == 0


def test_many_answers_that_failed_are_tried_again_together(bench: Bench) -> None:
    bench.take(3, answer(5), answer(6, "MSFT"), answer(7, "TSLA"))
    bench.sink.confirmed()
    for _, _, future in bench.producer.sent:
        future.end(KafkaTimeoutError("gone"))
    bench.renewed()
    assert bench.versions() == [5, 6, 7] * 2


def test_an_answer_that_may_not_be_written_ends_the_consumer(bench: Bench) -> None:
    bench.take(2, answer(5))
    bench.sink.confirmed()
    bench.producer.sent[0][2].end(TopicAuthorizationFailedError("stream-engine.answers"))
    with pytest.raises(WriteRefused, match=r"stream-engine.answers cannot be written.*right to write"):
        bench.sink.confirmed()


def test_a_partition_that_left_gets_nothing_more_written_and_the_book_knows(bench: Bench) -> None:
    bench.take(1, answer(5))
    bench.sink.confirmed()
    bench.producer.away = True
    bench.take(3, answer(6), answer(7), answer(8, "MSFT"))
    bench.sink.forget(SOURCE)
    bench.producer.away = False
    bench.sink.confirmed()
    assert bench.versions() == [5]
    told = bench.book.get("AAPL", "q")
    assert told is not None
    assert told.session_version == 5
    assert bench.book.get("MSFT", "q") is None
    bench.producer.sent[0][2].end()
    assert len(bench.sink.confirmed()) == 1
    bench.take(4, answer(6), answer(7))  # it comes back
    bench.sink.confirmed()
    assert bench.versions() == [5, 6, 7]


def test_what_fails_after_its_partition_left_is_not_written_again(bench: Bench) -> None:
    bench.take(1, answer(4))
    bench.sink.confirmed()
    bench.producer.sent[0][2].end()
    bench.sink.confirmed()
    bench.take(2, answer(5), answer(6))
    bench.sink.confirmed()
    bench.sink.forget(SOURCE)
    for _, _, future in bench.producer.sent[1:]:
        future.end(KafkaTimeoutError("gone"))
    assert bench.renewed() == []
    assert (bench.versions(), bench.sink.pending) == ([4, 5, 6], 0)
    told = bench.book.get("AAPL", "q")
    assert told is not None
    assert told.session_version == 4


def test_what_is_on_its_way_for_long_when_its_partition_leaves_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.take(2, answer(5))
    bench.sink.confirmed()
    future = bench.producer.sent[0][2]
    bench.sink.forget(SOURCE)
    assert not future.is_done
    monkeypatch.setattr(module, "CUT_OFF_AFTER_S", -1.0)
    bench.sink.forget(SOURCE)
    assert isinstance(future.exception, IllegalStateError)
    bench.renewed()
    assert (bench.versions(), bench.sink.pending) == ([5], 0)
