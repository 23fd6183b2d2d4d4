"""What we write fits its topic, whatever ``max.message.bytes`` that has; nothing is tried for ever, or ends us."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaAdminClient

from consumers.kafka.offsets import CommitPoint
from consumers.kafka.publish import PublishError, publish
from tests.support.pipeline import PATIENCE_S, Pipeline

START_S = 1_700_006_400  # a whole day


def bar(minute: int) -> dict[str, Any]:
    return {"t": START_S + 60 * minute, "o": 100.0, "h": 101.0, "l": 99.0, "c": 100.0, "v": 5}


def trade(second: float, number: int) -> dict[str, Any]:
    return {"t": START_S + second, "p": 100 + number % 7, "q": 1, "id": str(UUID(int=number))}


@pytest.fixture
def limited(kafka: Any, topic_prefix: str) -> Callable[..., dict[str, str]]:
    """Makes topics with a limit before the pipeline does."""

    def make(**limits: int) -> None:
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        for name, limit in limits.items():
            options = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": str(limit)}}
            admin.create_topics({f"{topic_prefix}0-{name.replace('_dlq', '.dlq')}": options})
        admin.close()

    return make  # type: ignore[return-value]


def until_counted(pipeline: Pipeline, name: str) -> float:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        for counters in pipeline.status().consumer_counters.values():
            if counters.get(name):
                return counters[name]
        assert time.monotonic() < deadline, f"never counted: {name}"
        time.sleep(0.2)


@pytest.mark.parametrize("limit", [None, 20_000, 700])
def test_an_open_bar_of_30_000_trades_is_the_same_after_a_restart(
    make_pipeline: Callable[..., Pipeline], limited: Callable[..., None], limit: int | None
) -> None:
    if limit is not None:
        limited(windows=limit)
    pipeline = make_pipeline({"quiet_records": 500}, standing_topic="", bar_seconds=86_400)
    topic = pipeline.kafka.trades_topic
    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.put(topic, [("CLOSED", trade(n, n)) for n in range(30_000)])
    end = pipeline.put(topic, [("OPEN", trade(86_400 * n / 100, 10**6 + n)) for n in range(2_000)])
    while pipeline.until_committed(topic, end) < 29_000:  # until it counts on what is saved
        assert end < 33_000, "the bar is never saved"
        end = pipeline.put(topic, [("OPEN", trade(20 * 86_400, 10**6 + end))] * 10)
    saved = {record.key: record.value for record in pipeline.read(pipeline.kafka.windows_topic)}
    value = saved[f"{topic}/open|CLOSED".encode()]
    assert len(value) < (limit or 200_000)
    if limit is not None:
        assert until_counted(pipeline, "skipped_open_bar_shortened_total") >= 1

    for name in ("consumer", "engine"):
        pipeline.stop(name)
    pipeline.start_engine()
    pipeline.start_consumer()
    end = pipeline.put(topic, [("CLOSED", trade(86_400, 10**7)), ("CLOSED", trade(2 * 86_400, 10**7 + 1))])
    pipeline.until_committed(topic, end)
    first = pipeline.engine.sessions["CLOSED"].region.bars[0].bar
    assert (first.open, first.high, first.low, first.volume) == (100, 106, 100, 30_000)


def test_a_window_that_does_not_fit_is_left_out_and_counted(
    make_pipeline: Callable[..., Pipeline], limited: Callable[..., None]
) -> None:
    limited(windows=300)
    pipeline = make_pipeline({"quiet_records": 20}, standing_topic="")
    topic = pipeline.kafka.bars_topic
    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.put(topic, [("QUIET", bar(minute)) for minute in range(40)])
    end = pipeline.put(topic, [("BUSY", bar(minute)) for minute in range(300)])
    pipeline.until_committed(topic, end)
    assert until_counted(pipeline, "skipped_window_too_large_total") >= 1
    newest = {record.key: record.value for record in pipeline.read(pipeline.kafka.windows_topic)}
    assert newest[f"{topic}|QUIET".encode()] is None  # no older one passes for it


@pytest.mark.parametrize(("limit", "written"), [(70_000, 65_536), (2_500, 1_024), (700, 0), (200, None)])
def test_a_dead_letter_is_cut_to_what_its_topic_takes(
    make_pipeline: Callable[..., Pipeline], limited: Callable[..., None], limit: int, written: int | None
) -> None:
    limited(bars_dlq=limit)
    pipeline = make_pipeline(standing_topic="")
    topic = pipeline.kafka.bars_topic
    pipeline.start_engine()
    pipeline.start_consumer()
    end = pipeline.put(topic, [("A", b"x" * 300_000), *(("A", bar(minute)) for minute in range(5))])
    pipeline.until_committed(topic, end)
    found = [len(record.value) for record in pipeline.read(topic + pipeline.kafka.dead_letter_suffix)]
    assert found == ([] if written is None else [written])
    if written is None:
        assert until_counted(pipeline, "skipped_dead_letter_too_large_total") == 1


def test_an_answer_that_does_not_fit_is_left_out_and_counted(
    make_pipeline: Callable[..., Pipeline], limited: Callable[..., None]
) -> None:
    limited(answers=300)
    pipeline = make_pipeline()
    topic = pipeline.kafka.bars_topic
    query = {"session": "*", "question": "Is the price going up or down?", "on": "commit"}
    pipeline.put(pipeline.kafka.standing_topic, [("q", query)])
    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.until_committed(topic, pipeline.put(topic, [("A", bar(minute)) for minute in range(60)]))
    assert until_counted(pipeline, "skipped_answer_too_large_total") >= 1
    assert pipeline.read(pipeline.kafka.answers_topic) == []


def test_a_bar_that_is_too_large_to_publish_is_named(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline(standing_topic="")
    with pytest.raises(PublishError, match=r"after 1 bars: .*MessageSizeTooLarge"):
        publish([("A", bar(0)), ("x" * 2_000_000, bar(1))], pipeline.kafka, pipeline.kafka.bars_topic)
    assert len(pipeline.read(pipeline.kafka.bars_topic)) == 1


def test_the_metadata_of_an_offset_commit_is_short_whatever_the_offsets() -> None:
    assert len(CommitPoint(2**63 - 1, 2**63 - 1).metadata()) < 100  # a broker takes 4,096
