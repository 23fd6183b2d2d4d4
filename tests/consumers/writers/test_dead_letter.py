"""Dead letters are retried until confirmed, and cut where they do not fit. The producer is played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kafka.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)
from kafka.future import Future

from consumers.kafka.producer import WriteRefused
from consumers.wire.reasons import DeadLetter, RawRecord, Reason
from consumers.writers import dead_letter
from consumers.writers.dead_letter import Confirmation, DeadLetterWriter, headers
from stream_engine.config import KafkaSettings


class PlayedProducer:
    """``lives`` counts how often one was made."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], Future]] = []
        self.refuse: Exception | None = None
        self.lives = 0
        self._sender = self

    def make(self) -> PlayedProducer:
        self.lives += 1
        return self

    def force_close(self) -> None:
        for _, future in self.sent:
            if not future.is_done:
                future.failure(IllegalStateError("given up"))

    def join(self, timeout: float) -> None:
        pass

    def close(self, timeout: float) -> None:
        pass

    def send(self, topic: str, **message: Any) -> Future:
        if self.refuse is not None:
            raise self.refuse
        if message["value"] is None and message["key"] is None:
            raise ValueError("Need at least one: key or value")
        self.sent.append(({"topic": topic, **message}, Future()))
        return self.sent[-1][1]


@pytest.fixture
def producer() -> PlayedProducer:
    return PlayedProducer()


@pytest.fixture
def writer(producer: PlayedProducer, monkeypatch: pytest.MonkeyPatch) -> DeadLetterWriter:
    monkeypatch.setattr(dead_letter, "RETRY_AFTER_S", 0.0)
    return DeadLetterWriter(KafkaSettings(), producer.make)


def renewed(writer: DeadLetterWriter) -> list[Confirmation]:
    """What is confirmed, and sent, once there is another producer in the place of one that failed."""
    done = writer.confirmed()
    while not writer._producer.ready():
        pass
    return done + writer.confirmed()


def letter(value: bytes | None = b"bad", key: bytes | None = b"AAPL", bar: int | None = None) -> DeadLetter:
    raw = RawRecord("market.bars", 3, 41, 0, key, value)
    return DeadLetter(raw, value, Reason.NOT_JSON, "say what to do", bar)


def test_confirmed_only_after_the_broker_has_it(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    writer.send(letter(), generation=7)
    assert writer.confirmed() == []
    assert writer.pending == 1
    (message, future) = producer.sent[0]
    assert (message["topic"], message["key"], message["value"]) == ("market.bars.dlq", b"AAPL", b"bad")
    future.success(None)
    assert writer.confirmed() == [Confirmation("market.bars", 3, 7, 41)]
    assert writer.confirmed() == []
    assert writer.pending == 0


def test_headers_name_where_it_lies_and_why() -> None:
    assert headers(letter(bar=2)) == [
        ("topic", b"market.bars"),
        ("partition", b"3"),
        ("offset", b"41"),
        ("key", b"AAPL"),
        ("reason", b"not_json"),
        ("detail", b"say what to do"),
        ("bar", b"2"),
    ]


def test_a_record_without_key_and_value_can_be_written(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    writer.send(letter(value=None, key=None), 1)
    writer.confirmed()
    assert producer.sent[0][0]["value"] == b""


@pytest.mark.parametrize(
    "fail",
    [
        lambda future: future.failure(MessageSizeTooLargeError()),
        lambda future: future.failure(NotEnoughReplicasError()),
    ],
)
def test_a_failed_write_is_tried_again(
    fail: Callable[[Future], None], writer: DeadLetterWriter, producer: PlayedProducer
) -> None:
    writer.send(letter(), 1)
    writer.confirmed()
    fail(producer.sent[0][1])
    assert writer.confirmed() == []
    assert writer.pending == 1
    renewed(writer)
    assert producer.lives == 2  # the one of before may be of no use
    producer.sent[1][1].success(None)
    assert len(writer.confirmed()) == 1


def test_a_record_at_the_size_limit_is_cut_and_says_so(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    value = b"x" * 1_000_000
    producer.refuse = MessageSizeTooLargeError()
    writer.send(letter(value), 1)
    assert writer.confirmed() == []
    producer.refuse = None
    writer.confirmed()
    message = producer.sent[0][0]
    assert message["value"] == value[: dead_letter.CUT_VALUE_BYTES[0]]
    assert ("truncated", b"1000000") in message["headers"]


def test_what_the_broker_finds_too_large_is_cut_for_the_next_producer_and_the_others_are_not(
    writer: DeadLetterWriter, producer: PlayedProducer
) -> None:
    value = b"x" * 500_000
    writer.send(letter(value), 1)
    writer.send(letter(b"small"), 1)
    writer.confirmed()
    refusal = MessageSizeTooLargeError("of the topic")
    for _, future in producer.sent:  # it ends the producer, which gives that answer to all
        future.failure(refusal)
    renewed(writer)
    assert producer.lives == 2
    cut, whole = sorted((message for message, _ in producer.sent[2:]), key=lambda message: -len(message["value"]))
    assert cut["value"] == value[: dead_letter.CUT_VALUE_BYTES[0]]
    assert ("truncated", b"500000") in cut["headers"]
    assert whole["value"] == b"small"
    assert "truncated" not in dict(whole["headers"])
    for _, future in producer.sent[2:]:
        future.success(None)
    assert len(writer.confirmed()) == 2


def test_a_topic_that_may_not_be_written_ends_the_consumer(
    writer: DeadLetterWriter, producer: PlayedProducer
) -> None:
    writer.send(letter(), 1)
    writer.confirmed()
    producer.sent[0][1].failure(TopicAuthorizationFailedError("market.bars.dlq"))
    with pytest.raises(WriteRefused, match=r"market.bars.dlq cannot be written.*right to write"):
        writer.confirmed()


def test_a_broker_away_keeps_the_letters(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    producer.refuse = KafkaTimeoutError()
    for _ in range(3):
        writer.send(letter(), 1)
    assert writer.confirmed() == []
    assert writer.pending == 3
    producer.refuse = None
    writer.confirmed()
    for _, future in producer.sent:
        future.success(None)
    assert len(writer.confirmed()) == 3


def test_the_first_record_whose_letter_is_not_written(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    raw = letter().raw
    assert writer.first_pending(raw.topic, raw.partition) is None
    for offset in (9, 7):
        writer.send(replace(letter(), raw=replace(raw, offset=offset)), 1)
    assert writer.first_pending(raw.topic, raw.partition) == 7
    assert writer.first_pending(raw.topic, raw.partition + 1) is None
    writer.confirmed()
    assert writer.first_pending(raw.topic, raw.partition) == 7  # sent, and not confirmed
