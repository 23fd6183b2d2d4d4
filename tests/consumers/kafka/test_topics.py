"""The table of topics, and what of an existing topic counts as wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumers.inspection import TopicState
from consumers.kafka.topics import planned_topics
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.rules import ConfigError

SETTINGS = KafkaSettings(partitions=6, replication_factor=3, trades_retention_days=2, bars_retention_days=0)


def state(name: str, partitions: int, **config: str) -> TopicState:
    plan = next(plan for plan in planned_topics(SETTINGS) if plan.name == name)
    return TopicState(plan, partitions, 3, {name.replace("_", "."): value for name, value in config.items()})


def test_every_topic_has_a_plan_of_its_own() -> None:
    plans = {plan.name: plan for plan in planned_topics(SETTINGS)}
    assert len(plans) == len(planned_topics(SETTINGS))
    assert {plan.replication for plan in plans.values()} == {3}
    compacted = {SETTINGS.windows_topic, SETTINGS.standing_topic, SETTINGS.answers_topic}
    assert {name for name, plan in plans.items() if plan.compacted} == compacted
    assert plans[SETTINGS.trades_topic].config["retention.ms"] == "172800000"
    assert plans[SETTINGS.bars_topic].config["retention.ms"] == "-1"
    assert plans[SETTINGS.bars_topic].partitions == plans[SETTINGS.windows_topic].partitions == 6
    assert plans[SETTINGS.dead_letter_topic].partitions == plans[SETTINGS.standing_topic].partitions == 1


def test_windows_have_the_partitions_that_the_bars_have() -> None:
    plans = {plan.name: plan.partitions for plan in planned_topics(SETTINGS, source_partitions=12)}
    assert plans[SETTINGS.windows_topic] == 12
    assert plans[SETTINGS.answers_topic] == 6


def test_two_uses_of_one_topic_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'market\.bars' is named by two"):
        replace(SETTINGS, windows_topic="market.bars")


def test_only_what_would_be_wrong_is_a_difference() -> None:
    windows, bars = SETTINGS.windows_topic, SETTINGS.bars_topic
    assert state(windows, 0).differences() == []
    assert state(windows, 6, cleanup_policy="compact").differences() == []
    assert state(windows, 4, cleanup_policy="delete").differences() == [
        "cleanup.policy=delete, not compact",
        "4 partitions, not 6",
    ]
    assert state(bars, 50, cleanup_policy="delete", retention_ms="1000").differences() == []
    assert state(bars, 50, cleanup_policy="compact").differences() == ["cleanup.policy=compact, not delete"]


def test_a_topic_that_takes_not_even_our_shortest_messages_is_wrong() -> None:
    for name in (SETTINGS.windows_topic, SETTINGS.answers_topic, SETTINGS.standing_topic):
        small = {"cleanup_policy": "compact", "max_message_bytes": "2047"}
        assert state(name, 6 if name == SETTINGS.windows_topic else 1, **small).differences() == [
            "max.message.bytes=2047, less than 2048"
        ]
    assert state(SETTINGS.dead_letter_topic, 1, max_message_bytes="2047").differences() != []
    assert state(SETTINGS.windows_topic, 6, max_message_bytes="2048").differences() == []
    assert state(SETTINGS.bars_topic, 6, max_message_bytes="100").differences() == []  # others write it


def test_a_topic_is_described_as_it_is_or_as_it_will_be() -> None:
    assert state(SETTINGS.bars_topic, 0).describe() == "6 partitions, 3 replicas, kept for ever"
    bars = state(SETTINGS.bars_topic, 1, cleanup_policy="delete", retention_ms="604800000")
    assert bars.describe() == "1 partition, 3 replicas, kept 7 days"
    assert (
        state(SETTINGS.windows_topic, 2, cleanup_policy="compact").describe()
        == "2 partitions, 3 replicas, compacted"
    )
