"""What is written beside the offsets, to a broker that refuses it, or hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import TopicAuthorizationFailedError

from consumers.kafka.topics import ensure_topics
from consumers.wire.reasons import DeadLetter, RawRecord, Reason
from consumers.writers import answers as sink
from consumers.writers.answers import AnswerSink
from consumers.writers.dead_letter import DeadLetterWriter
from stream_engine.config.kafka import KafkaSettings
from stream_engine.localkafka import TemporaryKafka
from stream_engine.localkafka.process import read_record
from stream_engine.messages import AnswerChanged, Evaluations
from stream_engine.standing.answer_book import AnswerBook

PATIENCE_S = 60.0


def settings(bootstrap: str, prefix: str) -> KafkaSettings:
    names = {f"{name}_topic": prefix + name for name in ("bars", "trades", "windows", "standing", "answers")}
    return KafkaSettings(bootstrap_servers=bootstrap, group_id=prefix + "group", partitions=1, **names)


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def records(bootstrap: str, topic: str) -> list[Any]:
    reader = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    reader.assign([partition])
    end, found = reader.end_offsets([partition])[partition], []
    while reader.position(partition) < end:
        found += reader.poll(500).get(partition, [])
    reader.close()
    return found


def test_a_dead_letter_that_the_broker_finds_too_large_is_cut_and_the_others_follow(
    kafka: Any, topic_prefix: str
) -> None:
    kafka_settings = settings(kafka.bootstrap, topic_prefix)
    small = NewTopic(kafka_settings.dead_letter_topic, 1, 1, topic_configs={"max.message.bytes": "100000"})
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.create_topics([small])
    admin.close()
    ensure_topics(kafka_settings)
    writer = DeadLetterWriter(kafka_settings)

    values = [b"x" * 500_000, b"before", b"y" * 300_000]
    for offset, value in enumerate(values):
        raw = RawRecord(kafka_settings.bars_topic, 0, offset, 0, b"AAPL", value)
        writer.send(DeadLetter(raw, value, Reason.NOT_JSON, "say what to do"), 1)
    confirmed: list[int] = []

    def written() -> bool:
        confirmed.extend(confirmation.offset for confirmation in writer.spool.confirmed())
        return not writer.spool.pending

    until(written, "all of them are written")
    raw = RawRecord(kafka_settings.bars_topic, 0, 3, 0, b"AAPL", b"after")
    writer.send(DeadLetter(raw, b"after", Reason.NOT_JSON, "say what to do"), 1)
    until(written, "a later one is written")
    writer.spool.close(5.0)

    assert sorted(confirmed) == [0, 1, 2, 3]
    found = {
        dict(record.headers)["offset"]: record
        for record in records(kafka.bootstrap, kafka_settings.dead_letter_topic)
    }
    assert [found[number].value for number in (b"0", b"1", b"2", b"3")] == [
        values[0][:65_536],
        b"before",
        values[2][:65_536],
        b"after",
    ]
    assert dict(found[b"0"].headers)["truncated"] == b"500000"
    assert "truncated" not in dict(found[b"1"].headers)


def test_a_broker_that_does_not_tell_its_limits_is_found_out_by_writing(
    kafka: Any, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may write to a topic need not be one who may read its configuration."""

    def refuse(*_: Any, **__: Any) -> None:
        raise TopicAuthorizationFailedError("DescribeConfigs")

    monkeypatch.setattr(KafkaAdminClient, "describe_configs", refuse)
    kafka_settings = settings(kafka.bootstrap, topic_prefix)
    small = NewTopic(kafka_settings.dead_letter_topic, 1, 1, topic_configs={"max.message.bytes": "100000"})
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        admin.create_topics([small])
    ensure_topics(kafka_settings)
    writer = DeadLetterWriter(kafka_settings)
    for offset, value in enumerate((b"x" * 500_000, b"after")):
        raw = RawRecord(kafka_settings.bars_topic, 0, offset, 0, b"AAPL", value)
        writer.send(DeadLetter(raw, value, Reason.NOT_JSON, "say what to do"), 1)

    def written() -> bool:
        writer.spool.confirmed()
        return not writer.spool.pending

    until(written, "both are written")
    writer.spool.close(5.0)
    found = {
        dict(record.headers)["offset"]: record.value
        for record in records(kafka.bootstrap, kafka_settings.dead_letter_topic)
    }
    assert found == {b"0": b"x" * 65_536, b"1": b"after"}


def answer(version: int) -> AnswerChanged:
    return AnswerChanged(
        session="AAPL", query="q", question="?", answer="up", previous="down", initial=False, class_="trend",
        gap=1.0, confidence=None,
        session_version=version, topic="bars", partition=0, offset=version - 1, event_time=None,
    )  # fmt: skip


def test_answers_are_written_in_order_by_a_broker_that_hung_for_longer_than_a_write_may_take(
    topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "DELIVERY_TIMEOUT_MS", 3_000)
    with TemporaryKafka() as own:
        kafka_settings = settings(own.bootstrap, topic_prefix)
        ensure_topics(kafka_settings)
        answers = AnswerSink(kafka_settings, AnswerBook())
        confirmed: list[int] = []

        def written() -> bool:
            confirmed.extend(confirmation.offset for confirmation in answers.spool.confirmed())
            return not answers.spool.pending

        def take(*versions: int) -> None:
            answers.take(
                Evaluations(
                    boot_id="boot",
                    topic="bars",
                    partition=0,
                    generation=1,
                    number=versions[-1],
                    answers=tuple(answer(version) for version in versions),
                )
            )

        take(1)
        until(written, "the first answer is written")
        record = read_record(own.data_dir / "broker.pid")
        broker = record.process() if record is not None else None
        assert broker is not None
        broker.suspend()
        try:
            take(2, 3)
            first = next(iter(answers.spool))
            answers.spool.confirmed()
            sent = first.future
            until(lambda: sent.is_done and answers.spool.confirmed() == [], "its time is over")
            assert first.future is not sent, "it is to be sent again"
        finally:
            broker.resume()
        take(4)
        until(written, "everything is written")
        answers.spool.close(5.0)

        assert confirmed == [0, 1, 2, 3]
        versions = [record.value for record in records(own.bootstrap, kafka_settings.answers_topic)]
        assert b'"session_version":4' in versions[-1]
        for version in (1, 2, 3):
            assert any(b'"session_version":%d,' % version in value for value in versions)
