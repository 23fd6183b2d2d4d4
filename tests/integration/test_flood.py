"""Overload of the whole service: on every key at once, a thousand times what may be in flight, all of it in the
log before the engine, held back by its credits, has applied more than a little."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.metrics import samples
from stream_engine.client.options import Options

PATIENCE_S = 180.0
START = datetime(2024, 1, 2, tzinfo=UTC)
KEYS = [f"FLOOD{number:02d}" for number in range(48)]
WARM_BARS = 33
FLOOD_BARS = 25
CREDITS = 1
BACKLOG = 50 * CREDITS
"""What has to be missing when all is in the log: less would be no flood. Most of the thousand is missing then."""
GROWTH = 200 * 1024 * 1024
"""Bytes that a process may grow by. The flood itself is small: this catches what grows with each record."""


def bar(number: int) -> dict[str, Any]:
    close = 100 + (number * 7 % 11) * 0.5
    at = START + timedelta(minutes=number)
    return {"ts": at.isoformat(), "open": close, "high": close + 1, "low": close - 1, "close": close}


@dataclass
class Scrape:
    """``/metrics`` and ``/health/ready`` of one moment. ``applied`` is by partition, the next offset; so is
    ``lag``, of those partitions whose consumer has reported lately."""

    applied: dict[int, int] = field(default_factory=dict)
    lag: dict[int, int] = field(default_factory=dict)
    ready_lag: int | None = None
    dead_letters: int = 0
    values: dict[str, float] = field(default_factory=dict)


def scrape(http: httpx.Client, topic: str) -> Scrape:
    found = Scrape(ready_lag=http.get("/health/ready").json()["lag_records"])
    for sample in samples(http.get("/metrics").raise_for_status().text):
        if sample.labels.get("topic") == topic:
            if sample.name == "stream_engine_partition_applied_offset":
                found.applied[int(sample.labels["partition"])] = int(sample.value)
            elif sample.name == "stream_engine_consumer_lag_records":
                found.lag[int(sample.labels["partition"])] = int(sample.value)
        elif sample.name == "stream_engine_consumer_dead_letters_total":
            found.dead_letters += int(sample.value)
        elif not sample.labels:
            found.values[sample.name] = sample.value
    return found


class Asking:
    """A client that asks one session after the other for the length of a block."""

    def __init__(self, url: str) -> None:
        self.statuses: Counter[int] = Counter()
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60.0, trust_env=False) as http:
            number = 0
            while not self._stop.wait(0.03):
                reply = http.post(
                    f"/v1/sessions/{KEYS[number % len(KEYS)]}/query", json={"question": "What is the trend?"}
                )
                self.statuses[reply.status_code] += 1
                number += 1


@pytest.fixture
def service(kafka: Any, decisive_model: Path) -> Iterator[PrivateService]:
    settings = {
        "STREAM_ENGINE_ENGINE_MODEL": str(decisive_model),
        "STREAM_ENGINE_ENGINE_CREDITS": str(CREDITS),
    }
    with PrivateService(Options(None, "info"), kafka.bootstrap, settings) as started:
        started.await_ready(PATIENCE_S)
        yield started


def ends(service: PrivateService) -> dict[int, int]:
    consumer = KafkaConsumer(bootstrap_servers=service.bootstrap.split(","))
    partitions = [TopicPartition(service.topic, number) for number in consumer.partitions_for_topic(service.topic)]
    found = {tp.partition: offset for tp, offset in consumer.end_offsets(partitions).items()}
    consumer.close()
    return found


@pytest.fixture
def producer(service: PrivateService) -> Iterator[KafkaProducer]:
    opened = KafkaProducer(bootstrap_servers=service.bootstrap.split(","), linger_ms=20)
    yield opened
    opened.close()


def assignments(service: PrivateService) -> list[str]:
    """What the consumer said of gaining, starting and losing partitions."""
    said = re.compile(r" consumer .*( assigned| revoked| starts at | lost)")
    return [line for line in service.log_file.read_text().splitlines() if said.search(line)]


def test_a_flood_is_applied_with_bounded_memory_while_questions_are_answered(
    service: PrivateService, producer: KafkaProducer
) -> None:
    values = [json.dumps(bar(number)).encode() for number in range(WARM_BARS, WARM_BARS + FLOOD_BARS)]
    warm = json.dumps([bar(number) for number in range(WARM_BARS)]).encode()
    for key in KEYS:
        producer.send(service.topic, key=key.encode(), value=warm)
    producer.flush()
    processes = {name: psutil.Process(service.process_ids(name)[-1]) for name in ("engine", "consumer", "api")}
    with httpx.Client(base_url=service.url, timeout=60.0, trust_env=False) as http:
        wait_until(lambda: scrape(http, service.topic).applied == ends(service))
        before = {name: process.memory_info().rss for name, process in processes.items()}
        starts = assignments(service)
        peak = dict(before)

        scrapes: list[Scrape] = []
        with Asking(service.url) as asking:
            for value in values:
                for key in KEYS:
                    producer.send(service.topic, key=key.encode(), value=value)
            producer.flush()
            end = ends(service)

            def applied() -> bool:
                scrapes.append(scrape(http, service.topic))
                for name, process in processes.items():
                    peak[name] = max(peak[name], process.memory_info().rss)
                return scrapes[-1].applied == end

            wait_until(applied)
            missing = [
                {number: end[number] - offset for number, offset in seen.applied.items()} for seen in scrapes
            ]
            assert sum(missing[0].values()) >= BACKLOG, "the engine kept up: this was no flood"
            wait_until(lambda: scrape(http, service.topic).lag == dict.fromkeys(end, 0))

        # All of it, once, and nothing beside it.
        sessions = {row["id"]: row for row in http.get("/v1/sessions?limit=1000").json()["data"]}
        newest = bar(WARM_BARS + FLOOD_BARS - 1)["ts"].replace("+00:00", "Z")
        assert {key: sessions[key]["last_event_time"] for key in KEYS} == dict.fromkeys(KEYS, newest)
        wait_until(lambda: http.get("/health/ready").status_code == 200)
        after = scrape(http, service.topic)
        assert after.values["stream_engine_bars_total"] == len(KEYS) * (WARM_BARS + FLOOD_BARS)
        assert after.dead_letters == 0
        assert after.values.get("stream_engine_duplicates_total", 0) == 0

    # No rebalance, and no partition begun again.
    assert assignments(service) == starts
    assert len(starts) >= 2 * len(end)
    assert {name: service.process_ids(name) for name in processes} == {
        name: [process.pid] for name, process in processes.items()
    }, "no process was started again"

    assert set(asking.statuses) == {200}
    assert {name: peak[name] - before[name] for name in peak if peak[name] - before[name] > GROWTH} == {}

    # The lag is honest: most of the time no less is told than is missing. Not always: the end of a partition that
    # is paused beside one that is not is known as of its newest fetch, until all are paused or it is fetched.
    told = [
        (sum(seen.lag.values()), sum(lacking.values()))
        for seen, lacking in zip(scrapes, missing, strict=True)
        if set(seen.lag) == set(end)  # where no report has come lately there is none
    ]
    assert sum(lag >= lacking for lag, lacking in told) > len(told) / 2, told
    assert max(sum(seen.lag.values()) for seen in scrapes) > 10 * CREDITS
    assert max(seen.ready_lag or 0 for seen in scrapes) > 10 * CREDITS


def wait_until(what: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
