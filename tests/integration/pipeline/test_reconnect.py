"""A connection between consumer and engine that breaks, while both live: nothing that was on its way is missed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_engine.config.transport import TransportSettings
from tests.integration.pipeline.relay import Relay

PATIENCE_S = 60.0
START_S = 1_700_000_000
TREND = "What is the trend?"


@pytest.fixture
def make_relay(tmp_path: Path) -> Iterator[Callable[[Path], Relay]]:
    made: list[Relay] = []

    def make(engine: Path) -> Relay:
        made.append(Relay(tmp_path / "relay.sock", engine))
        return made[-1]

    yield make
    for relay in made:
        relay.close()


def bars(first: int, end: int) -> list[tuple[str, Any]]:
    return [
        ("AAPL", {"t": START_S + 60 * minute, "o": 100.0, "h": 101.0, "l": 99.0, "c": 100.0, "v": None})
        for minute in range(first, end)
    ]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)


def test_what_the_engine_said_on_a_connection_that_broke_is_said_again(
    make_relay: Callable[[Path], Relay], make_pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    pipeline = make_pipeline()
    topic = pipeline.kafka.bars_topic
    pipeline.start_engine()
    engine = pipeline.engine
    transport = pipeline.config.transport
    relay = make_relay(Path(transport.engine.removeprefix("ipc://")))
    pipeline.config = replace(
        pipeline.config, transport=TransportSettings(f"ipc://{tmp_path}/relay.sock", transport.events)
    )
    pipeline.put(pipeline.kafka.standing_topic, [("q", {"session": "*", "question": TREND, "on": "commit"})])
    pipeline.start_consumer()
    pipeline.put(topic, bars(0, 20))
    pipeline.until_committed(topic, 20)

    relay.deaf = True
    pipeline.put(topic, bars(20, 60))
    until(lambda: engine.ingest.partitions.applied(0, topic) == 60, "the engine applies what it can not confirm")
    assert pipeline.committed(topic)[0] < 60
    relay.cut()

    pipeline.until_committed(topic, 60)
    assert pipeline.engine is engine
    assert engine.sessions["AAPL"].version == 60
    answers = [msgspec.json.decode(record.value) for record in pipeline.read(pipeline.kafka.answers_topic)]
    assert answers[-1]["session_version"] == 60, "written before its offset was committed"
    pipeline.put(topic, bars(60, 65))
    pipeline.until_committed(topic, 65)
