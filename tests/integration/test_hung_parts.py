"""A part of the whole service is stopped, not ended: its probe fails, it is replaced, and answers come again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from kafka import KafkaProducer

from stream_engine.cli.commands.serve import PARTS
from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.options import Options

PATIENCE_S = 180.0
HUNG_AFTER_S = 8


@pytest.fixture(scope="module")
def service(kafka: Any) -> Iterator[PrivateService]:
    settings = {
        "STREAM_ENGINE_LIFE_HUNG_AFTER_S": str(HUNG_AFTER_S),
        "STREAM_ENGINE_KAFKA_SESSION_TIMEOUT_MS": "6000",
    }
    with PrivateService(Options(None, "info"), kafka.bootstrap, settings) as started:
        started.await_ready(PATIENCE_S)
        yield started


@pytest.fixture
def producer(service: PrivateService) -> Iterator[KafkaProducer]:
    opened = KafkaProducer(bootstrap_servers=service.bootstrap.split(","), acks="all")
    yield opened
    opened.close()


def until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return found


def probe(service: PrivateService, *parts: str, hung_after_s: float = HUNG_AFTER_S) -> tuple[int, str]:
    """As a container's liveness probe runs it."""
    env = service.environment | {"STREAM_ENGINE_LIFE_HUNG_AFTER_S": str(hung_after_s)}
    command = [sys.executable, "-m", "stream_engine.cli", "health", "live", *parts]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def record(number: int) -> bytes:
    close = 100.0 + number
    at = f"2024-01-{number + 1:02d}T00:00:00Z"
    return json.dumps({"ts": at, "open": close, "high": close + 1, "low": close - 1, "close": close}).encode()


def bars(service: PrivateService, part: str) -> int:
    """What the session has; 0 while nobody answers."""
    try:
        reply = httpx.get(f"{service.url}/v1/sessions/{part}", timeout=5.0, trust_env=False)
        return int(reply.json()["bars"]) if reply.status_code == 200 else 0
    except httpx.TransportError:
        return 0


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_stopped_is_replaced_and_answers_again(
    service: PrivateService, producer: KafkaProducer, part: str
) -> None:
    for number in range(8):
        producer.send(service.topic, key=part.encode(), value=record(number))
    producer.flush()
    until(lambda: bars(service, part) == 8)
    assert probe(service) == (0, "alive: engine, consumer, api\n")
    others = {other: service.process_ids(other) for other in PARTS if other != part}
    stopped = service.process_ids(part)[-1]

    os.kill(stopped, signal.SIGSTOP)
    # What an orchestrator sees, here with less patience than the supervisor has.
    status, said = until(lambda: (seen := probe(service, part, hung_after_s=2))[0] and seen)
    producer.send(service.topic, key=part.encode(), value=record(8))
    producer.flush()

    assert status == 1
    assert f"{part}, process {stopped}: no sign of life for " in said
    until(lambda: service.process_ids(part)[-1] != stopped)
    until(lambda: bars(service, part) == 9)
    until(lambda: probe(service)[0] == 0)
    log = service.log_file.read_text()
    assert f"\n{part}: hung, no sign of life for " in log
    assert {other: service.process_ids(other) for other in others} == others, "the others were left alone"
