"""The topics of this project, in one table: made where they are absent, taken as they are where they exist."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

from consumers.kafka.client import BrokerUnreachable, check_access, client_options
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.rules import ConfigError

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
COMPACTED = {
    "cleanup.policy": "compact",
    # The newest segment is never compacted: without a shorter one, a restart would read a week of old values.
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}


SMALLEST_LIMIT = 2_048
"""Bytes that a topic of ours should take at least: a deletion with the longest key."""


class TopicMissing(RuntimeError):
    """The topic is not there; the message lists those that are."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as this project makes it. ``config`` are Kafka's own topic settings."""

    name: str
    purpose: str
    partitions: int
    replication: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    fixed_partitions: bool = False
    """Another number of partitions would be wrong, not only another choice."""
    written: bool = False
    """This project writes to it, not others."""

    @property
    def compacted(self) -> bool:
        return self.config.get("cleanup.policy") == "compact"

    def too_small(self, config: Mapping[str, str]) -> str | None:
        """What is wrong where not even our shortest messages fit into the topic that has this ``config``."""
        limit = config.get("max.message.bytes", "")
        if not self.written or not limit.isdecimal() or int(limit) >= SMALLEST_LIMIT:
            return None
        return f"max.message.bytes={limit}, less than {SMALLEST_LIMIT}"


def planned_topics(settings: KafkaSettings, source_partitions: int | None = None) -> tuple[TopicPlan, ...]:
    """Every topic that is needed. ``source_partitions`` is what the bars and trades topics have at most, where
    they exist: a window lies in the partition that has the number of its session's own."""
    many, suffix = settings.partitions, settings.dead_letter_suffix
    bars, trades = settings.bars_topic, settings.trades_topic
    records, ticks = _kept(settings.bars_retention_days), _kept(settings.trades_retention_days)
    letters = _kept(settings.dead_letter_retention_days)
    table = [
        (bars, "bars in", many, records),
        (trades, "trades in", many, ticks),
        (bars + suffix, "bars that could not be taken", 1, letters),
        (trades + suffix, "trades that could not be taken", 1, letters),
        (settings.windows_topic, "windows of quiet sessions", source_partitions or many, COMPACTED),
    ]
    if settings.standing_topic:
        table += [
            (settings.standing_topic + suffix, "standing queries that could not be taken", 1, letters),
            (settings.standing_topic, "standing queries", 1, COMPACTED),
            (settings.answers_topic, "answers of standing queries", many, COMPACTED),
        ]
    fixed = (settings.windows_topic, settings.standing_topic)
    return tuple(
        TopicPlan(
            name=name,
            purpose=purpose,
            partitions=partitions,
            replication=settings.replication_factor,
            config=config,
            fixed_partitions=name in fixed,
            written=name not in settings.source_topics,
        )
        for name, purpose, partitions, config in table
    )


def _kept(days: int) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(days * DAY_MS if days else -1)}


def ensure_topics(settings: KafkaSettings, timeout_s: float = 15.0) -> list[str]:
    """Create the topics that are absent; the names of those made.

    Raises BrokerUnreachable or AccessRefused, which name the address or setting and what to do, and RuntimeError
    where the broker makes no such topic."""
    admin = open_admin(settings, timeout_s)
    try:
        plans = planned_topics(settings, source_partitions(admin, settings))
        existing = set(admin.list_topics())
        made = [plan.name for plan in plans if plan.name not in existing and _create(admin, plan)]
        admin.wait_for_topics([plan.name for plan in plans])
        return made
    finally:
        admin.close()


def require_topic(settings: KafkaSettings, topic: str, timeout_s: float = 5.0) -> None:
    """Raises TopicMissing, BrokerUnreachable or AccessRefused.

    Writing to an absent topic would have the broker make one up, with its own number of partitions: kafka-python
    3.0.12 ignores ``allow_auto_create_topics=False``."""
    admin = open_admin(settings, timeout_s)
    try:
        topics = sorted(admin.list_topics())
    finally:
        admin.close()
    if topic not in topics:
        shown = ", ".join(name for name in topics if not name.startswith("__"))[:300] or "none"
        raise TopicMissing(f"no topic {topic} at {settings.bootstrap_servers}; there are: {shown}")


def open_admin(settings: KafkaSettings, timeout_s: float) -> KafkaAdminClient:
    """An admin client of the settings' cluster, to be closed. Raises BrokerUnreachable or AccessRefused."""
    # First, because the client leaves its thread and sockets behind when it does not get in.
    check_access(settings, timeout_s)
    try:
        return KafkaAdminClient(
            **client_options(settings),
            client_id="stream-engine-topics",
            bootstrap_timeout_ms=int(timeout_s * 1000),
        )
    except KafkaTimeoutError as error:
        where = settings.bootstrap_servers
        raise BrokerUnreachable(f"the Kafka broker at {where} answered, and then did no more: {error}") from error


def message_limits(settings: KafkaSettings, topics: Iterable[str], timeout_s: float = 5.0) -> dict[str, int]:
    """The ``max.message.bytes`` of each topic; without those of which the broker does not tell."""
    try:
        admin = open_admin(settings, timeout_s)
    except (BrokerUnreachable, ConfigError) as error:
        log.warning("the largest message of our topics is not known: %s", error)
        return {}
    try:
        return {topic: int(config["max.message.bytes"]) for topic, config in topic_configs(admin, topics).items()}
    except (KafkaError, KeyError, TypeError, ValueError) as error:
        log.warning("the largest message of our topics is not told: %s: %s", type(error).__name__, error)
        return {}
    finally:
        admin.close()


def topic_configs(admin: KafkaAdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """What Kafka's own settings are for each topic. Raises KafkaError: not every user may ask."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    found = admin.describe_configs(resources, config_filter="all").get("topic", {}) if resources else {}
    return {
        topic: {name: str(entry["value"]) for name, entry in config.items()} for topic, config in found.items()
    }


def remedy(topic: str) -> str:
    """The command by which a topic that takes too little takes more."""
    return (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
        "--add-config max.message.bytes=1048588"
    )


def partition_count(admin: KafkaAdminClient, topic: str) -> int | None:
    """How many partitions the topic has; None where there is no such topic."""
    return len(admin.describe_topics([topic])[0]["partitions"]) or None


def source_partitions(admin: KafkaAdminClient, settings: KafkaSettings) -> int:
    """The most partitions that a topic of bars or trades has, or will have where it is absent."""
    return max(partition_count(admin, topic) or settings.partitions for topic in settings.source_topics)


def _create(admin: KafkaAdminClient, plan: TopicPlan) -> bool:
    options = {
        "num_partitions": plan.partitions,
        "replication_factor": plan.replication,
        "configs": dict(plan.config),
    }
    try:
        admin.create_topics({plan.name: options}, timeout_ms=10_000)
    except TopicAlreadyExistsError:
        return False  # another process was quicker
    except KafkaError as error:
        wanted = f"{plan.partitions} partitions, {plan.replication} replicas"
        raise RuntimeError(f"topic {plan.name} ({wanted}) cannot be made: {error}") from error
    log.info("made topic %s with %d partitions", plan.name, plan.partitions)
    return True
