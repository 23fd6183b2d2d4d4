"""A consumer whose engine is away: in its group, and quiet."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumers.kafka.source import KafkaSource
from stream_engine.messages.transport import EngineLink
from tests.support.played_engine import PATIENCE_S, Bench

TURNS = 10


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"


def test_it_asks_the_broker_for_nothing_and_waits_for_the_engine(
    kafka: Any, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(kafka.bootstrap, topic_prefix, tmp_path, partitions=2)
    consumer = bench.build()
    source: KafkaSource = consumer._source
    client = source._consumer
    try:

        def joined() -> bool:
            consumer.turn()
            return len(consumer._streams) == 2

        until(joined, "both partitions are assigned")

        asked: list[Any] = []
        coordinator = type(client._coordinator)
        send = coordinator._send_offset_fetch_request
        monkeypatch.setattr(
            coordinator,
            "_send_offset_fetch_request",
            lambda self, partitions: (asked.append(partitions), send(self, partitions))[1],
        )
        waits: list[int] = []
        drain = EngineLink.drain
        monkeypatch.setattr(EngineLink, "drain", lambda self, wait=0: (waits.append(wait), drain(self, wait))[1])
        for _ in range(TURNS):
            consumer.turn()
        assert asked == []
        assert len(waits) == TURNS
        assert min(waits) >= 100

        # The engine comes: nothing is waited out any more.
        engine = bench.engine("boot-1")

        def begun() -> bool:
            consumer.turn()
            engine.pump()
            return len(engine.assigns) == 2

        until(begun, "both partitions start")
        assert {assign.start for assign in engine.assigns} == {0}
        assert waits[-1] == 0
    finally:
        consumer._close()
        bench.close()
