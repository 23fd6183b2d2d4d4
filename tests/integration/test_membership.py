"""The consumer group against a real broker: static members, and what each member gets."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from consumers.kafka.source import AssignmentChange, InstanceIdTaken, KafkaSource, SourcePartition
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.rules import ConfigError
from tests.support.played_engine import PATIENCE_S, Bench


class Member:
    """A member of the group in a process of its own."""

    def __init__(self, bootstrap: str, group: str, instance: str, topic: str) -> None:
        command = (sys.executable, "-m", "tests.support.group_member", bootstrap, group, instance, topic)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.told.put(json.loads(line))

    def until(self, partitions: int) -> dict[str, Any]:
        """What it says once it has that many."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            state = self.told.get(timeout=max(0.1, deadline - time.monotonic()))
            if len(state["partitions"]) == partitions:
                return state

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join()


@contextmanager
def members() -> Iterator[list[Member]]:
    running: list[Member] = []
    try:
        yield running
    finally:
        for member in running:
            member.kill()


@pytest.fixture
def bench(kafka: Any, topic_prefix: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(kafka.bootstrap, topic_prefix, tmp_path, partitions=4, trades=True)
    yield made
    made.close()


def test_a_killed_static_member_has_its_partitions_again_without_a_rebalance(bench: Bench) -> None:
    with members() as running:

        def start(instance: str) -> Member:
            settings = bench.settings
            running.append(Member(settings.bootstrap_servers, settings.group_id, instance, bench.topic))
            return running[-1]

        first = start("a")
        first.until(4)
        second = start("b")
        had, other = first.until(2), second.until(2)
        while had["generation"] != other["generation"]:  # the second round of the cooperative rebalance
            had = first.until(2)

        first.kill()
        again = start("a").until(2)
        assert again == had
        with pytest.raises(queue.Empty):  # no rebalance for the other one
            second.told.get(timeout=1.0)


def test_a_second_consumer_under_the_same_id_ends_the_first_by_name(bench: Bench) -> None:
    engine = bench.engine("boot-1")
    bench.consume(group_instance_id="desk-1")
    engine.until(lambda: bool(engine.assigns), "the first has partitions")
    bench.consume(group_instance_id="desk-1")
    engine.until(lambda: bench.failure is not None, "the first learns of the second")
    assert isinstance(bench.failure, InstanceIdTaken)
    assert str(bench.failure).startswith("kafka.group_instance_id = 'desk-1': another consumer")


@pytest.mark.parametrize("instance", ["two words", ".", "", "x" * 250])
def test_an_id_that_kafka_would_refuse_is_named(instance: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.group_instance_id"):
        KafkaSettings(group_instance_id=instance)


def test_two_members_have_half_of_each_topic_and_the_same_numbers(bench: Bench) -> None:
    sources = [KafkaSource(bench.settings, bench.settings.source_topics) for _ in range(2)]
    owned: list[set[SourcePartition]] = [set(), set()]

    def turn() -> None:
        for source, mine in zip(sources, owned, strict=True):
            source.poll(50, 1)
            for event in source.events():
                (mine.add if event.change is AssignmentChange.ASSIGNED else mine.discard)(event.partition)

    try:
        deadline = time.monotonic() + PATIENCE_S
        while {len(mine) for mine in owned} != {4}:
            assert time.monotonic() < deadline, owned
            turn()
        for mine in owned:
            topics = bench.settings.source_topics
            bars, trades = ({p.partition for p in mine if p.topic == topic} for topic in topics)
            assert len(bars) == 2
            assert bars == trades
    finally:
        for source in sources:
            source.close(5.0)
