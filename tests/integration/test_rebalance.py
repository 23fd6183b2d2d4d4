"""The group changes under load, the broker pauses, offsets age out: real broker, real processes."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, TopicPartition

from stream_engine.localkafka import TemporaryKafka
from tests.integration.chaos.deployment import Deployment
from tests.integration.chaos.scene import TREND, Scene

SETTINGS = {"kafka_session_timeout_ms": "6000", "kafka_poll_records": "20", "engine_stuck_after_s": "3"}
SETTINGS_WRONG = 2


@contextmanager
def load(scene: Scene) -> Iterator[None]:
    """Records for the length of the block."""
    stop = threading.Event()

    def publish() -> None:
        while not stop.wait(0.1):
            scene.stream(20)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def starts(deployment: Deployment, name: str) -> int:
    """Partitions of bars that this consumer has begun to read so far."""
    return len(re.findall(rf"{re.escape(deployment.topic)}/\d+ starts at", deployment.log(name)))


def health(deployment: Deployment) -> dict[str, Any]:
    said: dict[str, Any] = deployment.http.get("/health/ready").json()
    return said


def test_consumers_join_and_leave_under_load(kafka: Any) -> None:
    with Deployment(kafka.bootstrap, **SETTINGS) as deployment, Scene(deployment, random.Random(1)) as scene:
        scene.settle()

        def gets(name: str, partitions: int, change: Callable[[], object]) -> None:
            before = starts(deployment, name)
            change()
            deployment.until(lambda: starts(deployment, name) >= before + partitions)

        with load(scene):
            gets("consumer-2", 1, lambda: deployment.start("consumer-2"))
            gets("consumer-2", 1, lambda: deployment.stop("consumer"))  # it has all of them now
            gets("consumer", 1, lambda: deployment.start("consumer"))
            gets("consumer", 1, lambda: deployment.kill("consumer-2"))  # noticed by its silence
            gets("consumer-2", 1, lambda: deployment.start("consumer-2"))
        scene.settle()
        assert deployment.log("engine").count("engine ready") == 1


def test_a_broker_that_is_stopped_and_started_is_waited_for() -> None:
    with (
        TemporaryKafka() as broker,
        Deployment(broker.bootstrap, **SETTINGS) as deployment,
        Scene(deployment, random.Random(2)) as scene,
    ):
        scene.settle()
        with load(scene):
            broker.stop()
            symbol = scene.market.symbols[0]
            assert scene.ask(symbol)["session"] == symbol  # from what is there
            deployment.until(lambda: health(deployment).get("degraded"))
            said = health(deployment)
            assert (said["status"], said["lag_stale"]) == ("ready", True)
            assert said["degraded"][0].startswith("broker_unreachable: a consumer has no answer from Kafka since")
            broker.restart()
        scene.settle()
        deployment.until(lambda: health(deployment).get("degraded") == [])
        assert health(deployment)["lag_stale"] is False
        assert deployment.log("engine").count("engine ready") == 1


def age_out(scene: Scene) -> None:
    """Nothing runs for long: what was committed, and some that came after it, is gone from the log."""
    deployment = scene.deployment
    scene.settle()
    assert deployment.stop("consumer") == 0
    assert deployment.stop("engine") == 0
    for _ in range(20):
        for partition in range(deployment.partitions):
            scene.publish(scene.market.mark(partition))
    scene.flush()
    found = deployment.committed()
    with KafkaAdminClient(bootstrap_servers=deployment.kafka.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(deployment.topic, number): at + 10 for number, at in found.items()})


def test_offsets_that_aged_out_stop_the_consumer_until_a_person_decides(kafka: Any) -> None:
    with (
        Deployment(kafka.bootstrap, **SETTINGS) as deployment,
        Scene(deployment, random.Random(3)) as scene,
    ):
        age_out(scene)
        deployment.change(kafka_offset_reset="fail")
        deployment.start("engine", "consumer")
        assert deployment.ended("consumer") == SETTINGS_WRONG
        log = deployment.log("consumer")
        assert "has aged out: 10 records are gone" in log
        assert "kafka.offset_reset is 'fail': set it to 'earliest' or 'latest' for one start" in log

        deployment.change(kafka_offset_reset="earliest")
        deployment.start("consumer")
        deployment.until(scene.audit.caught_up)
        assert "kafka.offset_reset = earliest" in deployment.log("consumer")
        symbol = next(s for s in scene.market.symbols if scene.market.partition_of(s) == 0)
        answer = deployment.http.post(f"/v1/sessions/{symbol}/query", json={"question": TREND}).json()
        assert answer["offset"] == scene.audit.log.ends()[0] - 1
        assert answer["state"] == "INCOMPLETE"
        for _ in range(33):  # a window from behind the gap
            scene.publish(scene.market.mark(0))
        scene.flush()
        deployment.until(scene.audit.caught_up)
        assert scene.ask(symbol)["state"] == "LIVE"
        assert scene.witness.violations == []


def test_offsets_that_aged_out_are_passed_over_with_latest(kafka: Any) -> None:
    with (
        Deployment(kafka.bootstrap, **SETTINGS) as deployment,
        Scene(deployment, random.Random(4)) as scene,
    ):
        age_out(scene)
        ends = scene.audit.log.ends()
        deployment.change(kafka_offset_reset="latest")
        deployment.start("engine", "consumer")
        deployment.until(lambda: starts(deployment, "consumer") == 2 * deployment.partitions)
        log = deployment.log("consumer")
        for partition, end in ends.items():
            assert f"{deployment.topic}/{partition} starts at {end} " in log
            scene.publish(scene.market.mark(partition))
        scene.flush()
        deployment.until(scene.audit.caught_up)
        for partition, end in ends.items():
            symbol = next(s for s in scene.market.symbols if scene.market.partition_of(s) == partition)
            assert deployment.sessions()[symbol]["data_version"] == end + 1
        assert scene.witness.violations == []
