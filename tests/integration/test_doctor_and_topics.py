"""``stream-engine doctor`` and ``stream-engine topics`` as a user runs them, against a real broker and none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from consumers.inspection import inspect_kafka
from stream_engine.config.kafka import KafkaSettings
from stream_engine.util.findings import Finding, Level

SETTINGS = ("bars", "trades", "windows", "standing", "answers")


@pytest.fixture
def settings(kafka, topic_prefix: str) -> KafkaSettings:
    names = {f"{name}_topic": topic_prefix + name for name in SETTINGS}
    return KafkaSettings(kafka.bootstrap, topic_prefix + "group", partitions=2, **names)


def environment(settings: KafkaSettings, folder: Path, **more: str) -> dict[str, str]:
    """Of a service of its own, in a folder of its own; nothing of the caller's settings."""
    kept = {
        name: value for name, value in os.environ.items() if "KAFKA" not in name and "STREAM_ENGINE" not in name
    }
    named = {
        f"KAFKA_{name}_TOPIC": getattr(settings, f"{name.lower()}_topic") for name in map(str.upper, SETTINGS)
    }
    own = {
        "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "KAFKA_GROUP_ID": settings.group_id,
        "KAFKA_PARTITIONS": str(settings.partitions),
        "BOARD_PATH": str(folder / "ready.board"),
        "TRANSPORT_ENGINE": f"ipc://{folder}/engine.sock",
        "TRANSPORT_EVENTS": f"ipc://{folder}/events.sock",
        "API_PORT": "9",
        "ENGINE_MODEL": str(folder),
        **named,
        **more,
    }
    return kept | {f"STREAM_ENGINE_{name}": value for name, value in own.items()}


def run(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stream_engine.cli", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def findings(settings: KafkaSettings) -> dict[str, Finding]:
    return {finding.subject: finding for finding in inspect_kafka(settings, 10.0)}


def test_topics_are_shown_made_and_left_alone(settings: KafkaSettings, tmp_path: Path) -> None:
    env = environment(settings, tmp_path)
    planned = run(env, "topics", "create", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.count("would be made") == 8
    assert run(env, "topics", "list").returncode == 1

    made = run(env, "topics", "create")
    assert [line.split()[0] for line in made.stdout.splitlines()] == ["made"] * 8, made.stderr
    again = run(env, "topics", "create")
    assert [line.split()[0] for line in again.stdout.splitlines()] == ["exists"] * 8

    listed = run(env, "topics", "list")
    assert listed.returncode == 0
    lines = {line.split()[1]: line for line in listed.stdout.splitlines()}
    assert lines[settings.windows_topic].endswith("2 partitions, 1 replica, compacted")
    assert lines[settings.bars_topic].endswith("2 partitions, 1 replica, kept 365 days")
    assert lines[settings.dead_letter_topic].endswith("1 partition, 1 replica, kept 30 days")


def test_windows_follow_a_bars_topic_that_exists(settings: KafkaSettings, tmp_path: Path) -> None:
    with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
        admin.create_topics({settings.bars_topic: {"num_partitions": 3, "replication_factor": 1}})
        admin.create_topics({settings.windows_topic: {"num_partitions": 2, "replication_factor": 1}})
    listed = run(environment(settings, tmp_path), "topics", "list")
    assert listed.returncode == 1
    assert "PROBLEM: cleanup.policy=delete, not compact; 2 partitions, not 3" in listed.stdout
    found = findings(settings)
    assert found[f"topic {settings.windows_topic}"].level is Level.PROBLEM
    assert "delete it" in found[f"topic {settings.windows_topic}"].remedy
    assert found[f"topic {settings.bars_topic}"].level is Level.OK
    assert found[f"topic {settings.answers_topic}"].level is Level.WARNING


@pytest.mark.parametrize("setting", ["windows_topic", "answers_topic", "standing_topic", "dead_letter_topic"])
def test_a_topic_of_ours_that_takes_too_little_is_a_problem(setting: str, settings: KafkaSettings) -> None:
    name = getattr(settings, setting)
    small = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "2000"}}
    with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
        admin.create_topics({name: small})
    found = findings(settings)[f"topic {name}"]
    assert found.level is Level.PROBLEM
    assert "max.message.bytes=2000" in found.message


@pytest.fixture
def written(settings: KafkaSettings, tmp_path: Path) -> Iterator[KafkaConsumer]:
    """Five records in partition 0 of the bars topic; a consumer of the group, which has not joined."""
    made = run(environment(settings, tmp_path), "topics", "create")
    assert made.returncode == 0, made.stderr
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers)
    try:
        for _ in range(5):
            producer.send(settings.bars_topic, key=b"A", value=b"{}", partition=0).get(timeout=30)
    finally:
        producer.close()
    member = KafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, group_id=settings.group_id, enable_auto_commit=False
    )
    yield member
    member.close(autocommit=False)


def test_the_groups_lag_and_offsets_that_aged_out(settings: KafkaSettings, written: KafkaConsumer) -> None:
    group = f"group {settings.group_id}"
    behind = findings(settings)[group]
    assert (behind.level, "5 records behind" in behind.message) == (Level.WARNING, True)

    bars = TopicPartition(settings.bars_topic, 0)
    written.commit({bars: OffsetAndMetadata(2, "", -1)})
    assert "3 records behind" in findings(settings)[group].message
    assert findings(settings)["clock"].level is Level.OK

    with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
        admin.delete_records({bars: 4})
    aged = findings(settings)[group]
    assert aged.level is Level.PROBLEM
    assert f"aged out: {settings.bars_topic}/0" in aged.message

    written.commit({bars: OffsetAndMetadata(5, "", -1)})
    assert findings(settings)[group].level is Level.OK


def test_doctor_tells_the_broker_apart_from_the_rest(settings: KafkaSettings, tmp_path: Path) -> None:
    looked = run(environment(settings, tmp_path), "doctor", "--json")
    assert looked.returncode == 1  # the model folder is empty
    found = {finding["subject"]: finding for finding in json.loads(looked.stdout)}
    assert found["model"]["level"] == "problem"
    assert found["broker"]["level"] == "ok"
    assert found["api"]["level"] == found["board"]["level"] == found["transport.engine"]["level"] == "ok"
    assert all(finding["remedy"] for finding in found.values() if finding["level"] != "ok")


def test_doctor_without_a_broker_prints_no_secret(settings: KafkaSettings, tmp_path: Path) -> None:
    secret = "correct-horse"
    sasl = {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_SASL_MECHANISM": "PLAIN",
        "KAFKA_SASL_USERNAME": "desk",
        "KAFKA_SASL_PASSWORD": secret,
    }
    looked = run(environment(settings, tmp_path, **sasl), "--log-level", "debug", "doctor")
    assert looked.returncode == 1
    broker = next(line for line in looked.stdout.splitlines() if " broker " in line)
    assert broker.startswith("PROBLEM")
    assert "127.0.0.1:1" in broker
    assert secret not in looked.stdout + looked.stderr
    assert looked.stderr == ""

    refused = run(environment(settings, tmp_path, **sasl), "topics", "list")
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: no Kafka broker at 127.0.0.1:1 ")
    assert refused.stderr.count("\n") == 1
