"""Windows through the real broker: an engine that lost everything has the token logs of one that never stopped."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient

from consumers.kafka.source import SourcePartition
from consumers.writers.windows import WindowsTopicTooSmall, read_windows
from stream_engine.util.skipped import Skipped

START_S = 1_700_000_000
SKIPPED = Skipped(logging.getLogger(__name__))


def bars(count: int, seed: int) -> list[tuple[str, Any]]:
    """Mostly AAPL, some MSFT with corrections, and QUIET at the very beginning only."""
    chance = random.Random(seed)
    minute = dict.fromkeys(("AAPL", "MSFT", "QUIET"), 0)
    made: list[tuple[str, Any]] = []
    for number in range(count):
        key = "QUIET" if number < 40 else chance.choice(("AAPL", "AAPL", "MSFT"))
        at = minute[key]
        if at > 5 and chance.random() < 0.05:
            at -= chance.randint(1, 5)
        else:
            minute[key] += 1
        price = round(100 + chance.gauss(0, 1), 2)
        bar = {"t": START_S + 60 * at, "o": price, "h": price + 1, "l": price - 1, "c": price, "v": None}
        made.append((key, bar))
    return made


def token_logs(pipeline: Any) -> dict[str, Any]:
    return {
        name: (session.tokens, session.version, session.state, session.timestamp_ms > 0)
        for name, session in pipeline.engine.sessions.items()
    }


def test_an_engine_that_lost_everything_has_the_same_token_logs(make_pipeline: Callable[..., Any]) -> None:
    straight, broken = (make_pipeline({"quiet_records": 100}) for _ in range(2))
    records = bars(700, seed=1)
    for pipeline in (straight, broken):
        pipeline.start_engine()
        pipeline.start_consumer()
    straight.put(straight.kafka.bars_topic, records)
    topic = broken.kafka.bars_topic
    for start, end in ((0, 400), (400, 600), (600, 700)):
        broken.put(topic, records[start:end])
        floor = broken.until_committed(topic, end)
        assert floor > end - 250, "the quiet key and long regions must not hold the floor back"
        broken.stop("engine")
        broken.start_engine()
    end = broken.put(topic, [records[-1]])  # nothing new, but the new engine has to have applied it
    straight.put(straight.kafka.bars_topic, [records[-1]])
    broken.until_committed(topic, end)
    straight.until_committed(straight.kafka.bars_topic, end)
    assert token_logs(broken) == token_logs(straight)
    assert set(token_logs(broken)) == {"AAPL", "MSFT", "QUIET"}
    assert broken.engine.counters.replayed_total < 250


def test_a_restarted_consumer_restores_too(make_pipeline: Callable[..., Any]) -> None:
    pipeline = make_pipeline({"quiet_records": 100})
    topic = pipeline.kafka.bars_topic
    pipeline.start_engine()
    pipeline.start_consumer()
    records = bars(500, seed=2)
    pipeline.put(topic, records[:450])
    pipeline.until_committed(topic, 450)
    before = token_logs(pipeline)["QUIET"]
    pipeline.stop("consumer")
    pipeline.stop("engine")
    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.put(topic, records[450:])
    pipeline.until_committed(topic, 500)
    assert token_logs(pipeline)["QUIET"] == before
    assert not pipeline.engine.sessions["QUIET"].incomplete


def test_windows_of_an_earlier_topic_of_that_name_are_deleted(make_pipeline: Callable[..., Any]) -> None:
    pipeline = make_pipeline({"quiet_records": 50})
    topic = pipeline.kafka.bars_topic
    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.put(topic, bars(300, seed=3))
    pipeline.until_committed(topic, 300)
    pipeline.stop("consumer")
    pipeline.stop("engine")
    source = SourcePartition(topic, 0)
    assert {window.session for window in read_windows(pipeline.kafka, source, SKIPPED).windows} >= {"QUIET"}

    admin = KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)
    admin.delete_topics([topic])
    admin.close()
    pipeline.start_engine()
    pipeline.start_consumer()  # it makes the topic anew
    records = bars(30, seed=4)
    pipeline.put(topic, records)
    pipeline.until_committed(topic, 30)
    assert set(pipeline.engine.sessions) == {"QUIET"}
    assert len(pipeline.engine.sessions["QUIET"].region) == 30
    assert pipeline.engine.sessions["QUIET"].version == 30
    # The claim of the new life; nothing of the old one.
    (window,) = read_windows(pipeline.kafka, source, SKIPPED).windows
    assert (window.session, window.offset < 30) == ("QUIET", True)


def test_a_windows_topic_with_too_few_partitions_is_named(make_pipeline: Callable[..., Any]) -> None:
    pipeline = make_pipeline()
    with pytest.raises(WindowsTopicTooSmall, match="kafka-topics --alter"):
        read_windows(pipeline.kafka, SourcePartition(pipeline.kafka.bars_topic, 5), SKIPPED)
