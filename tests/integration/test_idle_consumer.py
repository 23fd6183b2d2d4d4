"""A consumer whose engine is away: in its group, and quiet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consumers.source import KafkaSource
from stream_engine.transport import EngineLink
from tests.integration.played_engine import Bench

TURNS = 10


def test_it_asks_the_broker_for_nothing_and_waits_for_the_engine(
    kafka: Any, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(kafka.bootstrap, topic_prefix, tmp_path, partitions=2)
    consumer = bench.build()
    source: KafkaSource = consumer._source
    client = source._consumer
    try:
        for _ in range(60):
            consumer.turn()
            if len(consumer._streams) == 2:
                break
        assert len(consumer._streams) == 2, "both partitions are assigned"

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
        for _ in range(60):
            consumer.turn()
            engine.pump()
            if len(engine.assigns) == 2:
                break
        assert {assign.start for assign in engine.assigns} == {0}
        assert waits[-1] == 0
    finally:
        consumer._close()
        bench.close()
