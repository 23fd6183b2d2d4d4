"""A recorded topic, read from its beginning to its present end."""

from __future__ import annotations

import pytest
from kafka import KafkaProducer

from consumers.kafka.topics import TopicMissing, ensure_topics
from consumers.recording import read_topic
from stream_engine.config.kafka import KafkaSettings

PARTITIONS, BARS = 3, 120


def test_every_bar_of_every_partition_is_read_once(kafka, topic_prefix: str) -> None:
    settings = KafkaSettings(
        bootstrap_servers=kafka.bootstrap,
        bars_topic=f"{topic_prefix}bars",
        trades_topic=f"{topic_prefix}trades",
        windows_topic=f"{topic_prefix}windows",
        standing_topic="",
        answers_topic=f"{topic_prefix}answers",
        partitions=PARTITIONS,
    )
    ensure_topics(settings)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for number in range(BARS):
        close = 100 + number % 7
        value = f'{{"ts": {1_700_000_000 + 60 * number}, "o": {close}, "h": {close}, "l": {close}, "c": {close}}}'
        for partition, key in enumerate(("AAPL", "BTC/USD")):
            producer.send(settings.bars_topic, key=key.encode(), value=value.encode(), partition=partition)
    producer.send(settings.bars_topic, key=b"AAPL", value=b"not json", partition=0)
    producer.flush()
    producer.close()
    told: list[tuple[int, int]] = []

    recording = read_topic(settings, settings.bars_topic, lambda done, total: told.append((done, total)))

    found = recording.series()
    assert list(found) == ["AAPL", "BTC/USD"]
    assert [len(bars) for bars in found.values()] == [BARS, BARS]
    assert recording.refused == {"not_json": 1}
    assert told[-1] == (2 * BARS + 1, 2 * BARS + 1)


def test_a_topic_that_is_not_there_is_named_and_not_made(kafka) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap)
    with pytest.raises(TopicMissing, match="never-made"):
        read_topic(settings, "never-made")
    with pytest.raises(TopicMissing):
        read_topic(settings, "never-made")
