"""What a cluster says about itself, our topics and our consumer group. Reads only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import CoordinatorNotAvailableError, KafkaError

from consumers.kafka.client import BrokerUnreachable
from consumers.kafka.topics import (
    DAY_MS,
    TopicPlan,
    open_admin,
    planned_topics,
    remedy,
    source_partitions,
    topic_configs,
)
from consumers.reading_check import check_codecs, check_reading
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.rules import ConfigError
from stream_engine.util.findings import Finding, ok, problem, warning

OLDEST_BROKER = (2, 8)
"""Older brokers lack cooperative rebalances of static members, or fetch-by-id; they are not tested either."""
MAKE = "stream-engine topics create"


@dataclass(frozen=True, slots=True)
class TopicState:
    """A planned topic, and what the cluster has; ``partitions`` is 0 where it is absent."""

    plan: TopicPlan
    partitions: int = 0
    replicas: int = 0
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        return self.partitions > 0

    def differences(self) -> list[str]:
        """What is not as planned and matters: a topic that somebody else made may well differ in the rest."""
        if not self.exists:
            return []
        found = []
        policy = self.config.get("cleanup.policy")
        if policy is not None and self.plan.compacted != ("compact" in policy):
            found.append(f"cleanup.policy={policy}, not {self.plan.config['cleanup.policy']}")
        if small := self.plan.too_small(self.config):
            found.append(small)
        if self.plan.fixed_partitions and self.partitions != self.plan.partitions:
            found.append(f"{self.partitions} partitions, not {self.plan.partitions}")
        return found

    def describe(self) -> str:
        """Partitions, replicas and how long its records are kept: as they are, or as they are planned."""
        partitions, replicas = self.partitions or self.plan.partitions, self.replicas or self.plan.replication
        return f"{_count(partitions, 'partition')}, {_count(replicas, 'replica')}, {self._kept()}"

    def _kept(self) -> str:
        config = self.config or self.plan.config
        policy, retention_ms = config.get("cleanup.policy", "delete"), int(config.get("retention.ms", -1))
        if policy == "compact":
            return "compacted"
        kept = "kept for ever" if retention_ms < 0 else f"kept {retention_ms / DAY_MS:g} days"
        return kept if policy == "delete" else f"{kept}, {policy}"


def survey_topics(settings: KafkaSettings, timeout_s: float) -> list[TopicState]:
    """Every planned topic as it is. Raises BrokerUnreachable, AccessRefused or KafkaError."""
    admin = open_admin(settings, timeout_s)
    try:
        return _survey(admin, settings)
    finally:
        admin.close()


def _survey(admin: KafkaAdminClient, settings: KafkaSettings) -> list[TopicState]:
    plans = planned_topics(settings, source_partitions(admin, settings))
    described = {
        topic["name"]: topic["partitions"] for topic in admin.describe_topics([plan.name for plan in plans])
    }
    existing = [plan.name for plan in plans if described.get(plan.name)]
    configs = topic_configs(admin, existing)
    states = []
    for plan in plans:
        partitions = described.get(plan.name) or []
        replicas = min((len(partition["replica_nodes"]) for partition in partitions), default=0)
        states.append(TopicState(plan, len(partitions), replicas, configs.get(plan.name, {})))
    return states


def inspect_kafka(settings: KafkaSettings, timeout_s: float) -> Iterator[Finding]:
    """Codecs, broker, topics, consumer group, what it has still to read, and clock."""
    yield check_codecs()
    try:
        admin = open_admin(settings, timeout_s)
    except BrokerUnreachable as error:
        message, _, remedy = str(error).partition(": ")
        yield problem("broker", message, remedy)
        return
    except ConfigError as error:
        yield problem("broker", str(error), "correct that setting")
        return
    try:
        yield from _inspect_broker(admin, settings)
        yield from _inspect_topics(_survey(admin, settings))
        yield from _inspect_group(admin, settings)
    except CoordinatorNotAvailableError:
        yield ok(f"group {settings.group_id}", "no consumer group has used this cluster yet")
    except KafkaError as error:
        remedy = "see the broker's log; where it has ACLs, grant Describe and DescribeConfigs"
        yield problem("broker", f"it refuses to tell more: {type(error).__name__}: {error}", remedy)
    finally:
        admin.close()


def _inspect_broker(admin: KafkaAdminClient, settings: KafkaSettings) -> Iterator[Finding]:
    cluster = admin.describe_cluster()
    brokers = cluster["brokers"]
    version = admin.get_broker_version_data(brokers[0]["broker_id"]).broker_version
    shown = ".".join(str(part) for part in version)
    where = f"{settings.bootstrap_servers} by {settings.security_protocol}"
    message = f"Kafka {shown} at {where}, {_count(len(brokers), 'broker')}, cluster {cluster['cluster_id']}"
    if version < OLDEST_BROKER:
        yield warning("broker", message, "this project is tested with Kafka 4; use a newer broker")
    else:
        yield ok("broker", message)


def _inspect_topics(states: list[TopicState]) -> Iterator[Finding]:
    for state in states:
        name = state.plan.name
        differences = state.differences()
        if not state.exists:
            yield warning(f"topic {name}", f"absent ({state.plan.purpose})", f"{MAKE}; serve makes it as well")
        elif differences:
            yield problem(f"topic {name}", "; ".join(differences), _remedy(state))
        else:
            yield ok(f"topic {name}", state.describe())


def _remedy(state: TopicState) -> str:
    name, policy = state.plan.name, state.plan.config["cleanup.policy"]
    if state.plan.fixed_partitions and state.partitions != state.plan.partitions:
        return f"delete it while the consumers are stopped, then {MAKE}"
    if state.plan.too_small(state.config):
        return remedy(name)
    return (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config cleanup.policy={policy}"
    )


def _inspect_group(admin: KafkaAdminClient, settings: KafkaSettings) -> Iterator[Finding]:
    subject = f"group {settings.group_id}"
    topics = [topic for topic in admin.describe_topics(list(settings.source_topics)) if topic["partitions"]]
    partitions = [
        TopicPartition(topic["name"], part["partition_index"]) for topic in topics for part in topic["partitions"]
    ]
    if not partitions:
        yield ok(subject, "nothing to consume yet")
        yield from check_clock(None)
        return
    ends = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    starts = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    committed = admin.list_group_offsets({settings.group_id: None})[settings.group_id]
    state = str(admin.describe_groups([settings.group_id])[settings.group_id]["group_state"] or "Dead")
    lag = sum(end.offset - _position(tp, committed, starts) for tp, end in ends.items())
    message = f"{state.lower()}, {_count(lag, 'record')} behind, {_count(len(partitions), 'partition')}"
    aged = [
        f"{tp.topic}/{tp.partition}" for tp in partitions if 0 <= _committed(tp, committed) < starts[tp].offset
    ]
    if aged:
        remedy = "raise the retention; kafka.offset_reset says what happens at the next start"
        yield problem(subject, f"{message}; committed offsets have aged out: {', '.join(aged)}", remedy)
    elif lag and state not in ("Stable", "PreparingRebalance", "CompletingRebalance"):
        yield warning(subject, message, "start the consumer: stream-engine serve, or serve consumer")
    else:
        yield ok(subject, message)
    spans = {tp: (_position(tp, committed, starts), end.offset) for tp, end in ends.items()}
    yield from check_reading(settings, spans)
    newest = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP))
    stamps = [offset.timestamp for offset in newest.values() if offset.timestamp >= 0]
    yield from check_clock(max(stamps, default=None))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _committed(tp: TopicPartition, committed: Mapping[TopicPartition, object]) -> int:
    found = committed.get(tp)
    return -1 if found is None else int(found.offset)  # type: ignore[attr-defined]  # kafka-python has no types


def _position(
    tp: TopicPartition, committed: Mapping[TopicPartition, object], starts: Mapping[TopicPartition, object]
) -> int:
    return max(_committed(tp, committed), int(starts[tp].offset))  # type: ignore[attr-defined]


def check_clock(newest_ms: int | None, now_ms: int | None = None) -> Iterator[Finding]:
    """Ages are local time minus a record's Kafka time stamp: a record from the future tells of a wrong clock."""
    if newest_ms is None:
        yield ok("clock", "no record to compare it with")
        return
    ahead_s = (newest_ms - (time.time_ns() // 1_000_000 if now_ms is None else now_ms)) / 1000
    if ahead_s > 2.0:
        remedy = "synchronise the clocks (NTP) of this machine and of the producers: ages are wrong until then"
        yield warning("clock", f"the newest record is {ahead_s:.1f} s in the future", remedy)
    else:
        yield ok("clock", f"the newest record is {-ahead_s:.1f} s old")
