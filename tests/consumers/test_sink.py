"""The sink: what is written, confirmed and held, with a producer that does what the test says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from consumers import sink as module
from consumers.dead_letter import Confirmation
from consumers.sink import AnswerSink
from stream_engine.answer_book import AnswerBook
from stream_engine.config import KafkaSettings
from stream_engine.messages import AnswerChanged, AnswerGone, Evaluations


class Future:
    def __init__(self) -> None:
        self.exception: BaseException | None = None
        self.is_done = False

    def failed(self) -> bool:
        return self.exception is not None

    def end(self, error: BaseException | None = None) -> None:
        self.is_done, self.exception = True, error


class Producer:
    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Any, Future]] = []
        self.away = False

    def partitions_for(self, topic: str) -> set[int]:
        return {0}

    def send(self, topic: str, key: bytes, value: bytes | None) -> Future:
        if self.away:
            raise KafkaTimeoutError("no memory")
        future = Future()
        self.sent.append((key, None if value is None else json.loads(value), future))
        return future


class Bench:
    def __init__(self) -> None:
        self.producer, self.book = Producer(), AnswerBook()
        self.sink = AnswerSink(KafkaSettings(), self.book, self.producer)

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
    assert bench.sink.confirmed() == []
    bench.sink.confirmed()
    assert bench.versions() == [5, 5]
    bench.producer.sent[1][2].end()
    assert bench.sink.confirmed() == [Confirmation("bars", 3, 77, 4, 2)]
