"""A real Apache Kafka, started, stopped, crashed and started again by the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from stream_engine import localkafka
from stream_engine.localkafka import BrokerState, LocalKafkaError, TemporaryKafka
from stream_engine.util.ports import free_port


def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
        admin.wait_for_topics([topic])


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    try:
        for future in [producer.send(topic, value, key=b"AAPL", partition=0) for value in values]:
            future.get(timeout=30)
    finally:
        producer.close()


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        values: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(values) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                values.extend(record.value for record in records)
        return values
    finally:
        consumer.close()


def wait_until_gone(process: psutil.Process, folder: Path) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        if not alive and not folder.exists():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[TemporaryKafka]:
    """A broker that these tests may stop and kill; each leaves it running."""
    with TemporaryKafka() as own:
        yield own


def test_shared_broker_keeps_records_and_group_offsets(kafka, topic_prefix: str) -> None:
    topic, group = topic_prefix + "bars", topic_prefix + "group"
    create_topic(kafka.bootstrap, topic, partitions=2)
    produce(kafka.bootstrap, topic, [b"one", b"two"])
    assert read(kafka.bootstrap, topic, 2) == [b"one", b"two"]

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        deadline = time.monotonic() + 30
        while not consumer.poll(timeout_ms=500) and time.monotonic() < deadline:
            pass
        consumer.commit()
    finally:
        consumer.close()
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        offsets = admin.list_group_offsets({group: None})[group]
    assert offsets[TopicPartition(topic, 0)].offset == 2


def test_records_with_old_event_times_are_not_deleted_by_age(own_kafka: TemporaryKafka, topic_prefix: str) -> None:
    topic = topic_prefix + "bars"
    create_topic(own_kafka.bootstrap, topic)
    with KafkaAdminClient(bootstrap_servers=own_kafka.bootstrap) as admin:
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    assert configs["topic"][topic]["retention.ms"]["value"] == "-1"


def test_start_of_a_running_broker_starts_nothing(own_kafka: TemporaryKafka) -> None:
    before = localkafka.status(own_kafka.data_dir)
    assert before.state is BrokerState.READY
    assert before.bootstrap == own_kafka.bootstrap
    again = localkafka.start(own_kafka.data_dir, own_kafka.port)
    assert again.already_running
    assert again.pid == before.pid
    with pytest.raises(LocalKafkaError, match=f"already runs on port {own_kafka.port}"):
        localkafka.start(own_kafka.data_dir, own_kafka.port + 1)


def test_clean_stop_and_second_start_keep_data(own_kafka: TemporaryKafka, topic_prefix: str) -> None:
    topic = topic_prefix + "bars"
    create_topic(own_kafka.bootstrap, topic)
    produce(own_kafka.bootstrap, topic, [b"kept"])
    assert localkafka.stop(own_kafka.data_dir) is True
    assert localkafka.status(own_kafka.data_dir).state is BrokerState.STOPPED
    assert localkafka.stop(own_kafka.data_dir) is False
    own_kafka.restart()
    assert read(own_kafka.bootstrap, topic, 1) == [b"kept"]


def test_crash_and_restart_keep_acknowledged_records_and_the_address(
    own_kafka: TemporaryKafka, topic_prefix: str
) -> None:
    topic, address = topic_prefix + "bars", own_kafka.bootstrap
    create_topic(address, topic)
    values = [str(number).encode() for number in range(100)]
    produce(address, topic, values)
    own_kafka.kill9()
    assert localkafka.status(own_kafka.data_dir).state is BrokerState.STOPPED
    own_kafka.restart()
    assert own_kafka.bootstrap == address
    assert read(address, topic, 100) == values


def test_failed_start_shows_the_end_of_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    (records / "meta.properties").write_text("version=99\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(LocalKafkaError, match="ended while it started") as failure:
        localkafka.start(tmp_path, free_port())
    assert "meta.properties" in str(failure.value)
    assert str(tmp_path) in str(failure.value)
    assert localkafka.status(tmp_path).state is BrokerState.STOPPED


def test_a_killed_test_run_leaves_no_broker_and_no_folder() -> None:
    code = """
from stream_engine.localkafka import TemporaryKafka, status
with TemporaryKafka() as own:
    print(status(own.data_dir).pid, own.data_dir, flush=True)
    input()
"""
    run = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with run:
        assert run.stdout is not None
        pid, folder = run.stdout.readline().split()
        broker = psutil.Process(int(pid))
        assert broker.is_running()
        os.kill(run.pid, signal.SIGKILL)
    assert wait_until_gone(broker, Path(folder))
