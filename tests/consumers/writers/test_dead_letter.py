"""Dead letters are retried until confirmed, and cut where they do not fit. The producer is played."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from kafka.errors import (
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)

from consumers.kafka.producer import WriteRefused
from consumers.wire.reasons import DeadLetter, RawRecord, Reason
from consumers.writers import spool
from consumers.writers.dead_letter import DeadLetterWriter, headers
from consumers.writers.spool import Confirmation
from stream_engine.config.kafka import KafkaSettings
from stream_engine.util.skipped import Skipped
from tests.support.played_producer import PlayedProducer, renewed


@pytest.fixture
def producer() -> PlayedProducer:
    return PlayedProducer()


@pytest.fixture
def writer(producer: PlayedProducer, monkeypatch: pytest.MonkeyPatch) -> DeadLetterWriter:
    monkeypatch.setattr(spool, "RETRY_AFTER_S", 0.0)
    return DeadLetterWriter(KafkaSettings(), producer.make)


def letter(value: bytes | None = b"bad", key: bytes | None = b"AAPL", bar: int | None = None) -> DeadLetter:
    raw = RawRecord("market.bars", 3, 41, 0, key, value)
    return DeadLetter(raw, value, Reason.NOT_JSON, "say what to do", bar)


def test_confirmed_only_after_the_broker_has_it(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    writer.send(letter(), generation=7)
    assert writer.spool.confirmed() == []
    assert writer.spool.pending == 1
    sent = producer.sent[0]
    assert (sent.topic, sent.key, sent.value) == ("market.bars.dlq", b"AAPL", b"bad")
    sent.succeed()
    assert writer.spool.confirmed() == [Confirmation("market.bars", 3, 7, 41)]
    assert writer.spool.confirmed() == []
    assert writer.spool.pending == 0


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
    writer.spool.confirmed()
    assert producer.sent[0].value == b""


@pytest.mark.parametrize("error", [MessageSizeTooLargeError(), NotEnoughReplicasError()])
def test_a_failed_write_is_tried_again(
    error: Exception, writer: DeadLetterWriter, producer: PlayedProducer
) -> None:
    writer.send(letter(), 1)
    writer.spool.confirmed()
    producer.sent[0].fail(error)
    assert writer.spool.confirmed() == []
    assert writer.spool.pending == 1
    renewed(writer)
    assert producer.lives == 2  # the one of before may be of no use
    producer.sent[1].succeed()
    assert len(writer.spool.confirmed()) == 1


def test_a_record_at_the_size_limit_is_cut_and_says_so(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    value = b"x" * 1_000_000
    producer.refuse = MessageSizeTooLargeError()
    writer.send(letter(value), 1)
    assert writer.spool.confirmed() == []
    producer.refuse = None
    writer.spool.confirmed()
    message = producer.sent[0]
    assert message.value == value[:65_536]
    assert ("truncated", b"1000000") in message.headers


def test_what_the_broker_finds_too_large_is_cut_for_the_next_producer_and_the_others_are_not(
    writer: DeadLetterWriter, producer: PlayedProducer
) -> None:
    value = b"x" * 500_000
    writer.send(letter(value), 1)
    writer.send(letter(b"small"), 1)
    writer.spool.confirmed()
    refusal = MessageSizeTooLargeError("of the topic")
    for sent in producer.sent:  # it ends the producer, which gives that answer to all
        sent.fail(refusal)
    renewed(writer)
    assert producer.lives == 2
    cut, whole = sorted(producer.sent[2:], key=lambda sent: -len(sent.value or b""))
    assert cut.value == value[:65_536]
    assert ("truncated", b"500000") in cut.headers
    assert whole.value == b"small"
    assert "truncated" not in dict(whole.headers)
    for sent in producer.sent[2:]:
        sent.succeed()
    assert len(writer.spool.confirmed()) == 2


def test_a_topic_that_may_not_be_written_ends_the_consumer(
    writer: DeadLetterWriter, producer: PlayedProducer
) -> None:
    writer.send(letter(), 1)
    writer.spool.confirmed()
    producer.sent[0].fail(TopicAuthorizationFailedError("market.bars.dlq"))
    with pytest.raises(WriteRefused, match=r"market.bars.dlq cannot be written.*right to write"):
        writer.spool.confirmed()


def test_a_broker_away_keeps_the_letters(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    producer.refuse = KafkaTimeoutError()
    for _ in range(3):
        writer.send(letter(), 1)
    assert writer.spool.confirmed() == []
    assert writer.spool.pending == 3
    producer.refuse = None
    writer.spool.confirmed()
    for sent in producer.sent:
        sent.succeed()
    assert len(writer.spool.confirmed()) == 3


def test_the_first_record_whose_letter_is_not_written(writer: DeadLetterWriter, producer: PlayedProducer) -> None:
    raw = letter().raw
    assert writer.first_pending(raw.topic, raw.partition) is None
    for offset in (9, 7):
        writer.send(replace(letter(), raw=replace(raw, offset=offset)), 1)
    assert writer.first_pending(raw.topic, raw.partition) == 7
    assert writer.first_pending(raw.topic, raw.partition + 1) is None
    writer.spool.confirmed()
    assert writer.first_pending(raw.topic, raw.partition) == 7  # sent, and not confirmed


def test_a_topic_that_alone_cannot_be_written_keeps_no_other_letter_waiting(
    writer: DeadLetterWriter, producer: PlayedProducer
) -> None:
    producer.refuse_topics.add("gone.dlq")
    gone = replace(letter(), raw=replace(letter().raw, topic="gone"))
    for dead in (gone, letter(), gone, letter()):
        writer.send(dead, 1)
    for _ in range(4):
        writer.spool.confirmed()
    assert [sent.topic for sent in producer.sent] == ["market.bars.dlq"] * 2
    assert writer.spool.pending == 4


def test_after_a_failure_nothing_is_sent_for_a_while(
    writer: DeadLetterWriter, producer: PlayedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "RETRY_AFTER_S", 3600.0)
    producer.refuse = KafkaTimeoutError()
    writer.send(letter(), 1)
    writer.spool.confirmed()
    producer.refuse = None
    writer.spool.confirmed()
    assert producer.sent == []
    assert writer.spool.pending == 1


def test_a_letter_of_which_nothing_fits_is_left_out_counted_and_settled(producer: PlayedProducer) -> None:
    skipped = Skipped(logging.getLogger(__name__))
    writer = DeadLetterWriter(KafkaSettings(), producer.make, skipped)
    producer.refuse = MessageSizeTooLargeError()
    writer.send(letter(b"x" * 100_000), 7)
    done = [confirmation for _ in range(5) for confirmation in writer.spool.confirmed()]
    assert done == [Confirmation("market.bars", 3, 7, 41)]
    assert (writer.spool.pending, writer.spool.written) == (0, 0)
    assert skipped.counts == {"dead_letter_too_large": 1}


def test_the_spool_says_when_it_is_full(
    writer: DeadLetterWriter, producer: PlayedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MAX_PENDING", 2)
    full = []
    for _ in range(2):
        full.append(writer.spool.full)
        writer.send(letter(), 1)
    writer.spool.confirmed()
    full.append(writer.spool.full)
    producer.sent[0].succeed()
    writer.spool.confirmed()
    assert [*full, writer.spool.full] == [False, False, True, False]
