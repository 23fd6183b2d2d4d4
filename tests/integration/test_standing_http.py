"""Standing queries over HTTP as the whole service keeps them: processes that are killed, a record by anyone."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kafka import KafkaProducer

from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.options import Options

PATIENCE_S = 180.0
PATH = "/v1/standing-queries"
TREND = "What is the trend?"


@pytest.fixture(scope="module")
def service(kafka: Any, decisive_model: Path) -> Iterator[PrivateService]:
    settings = {"STREAM_ENGINE_ENGINE_MODEL": str(decisive_model)}
    with PrivateService(Options(None, "info"), kafka.bootstrap, settings) as started:
        started.await_ready(PATIENCE_S)
        yield started


def until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return found


def test_queries_outlive_killed_processes_and_end_when_deleted(service: PrivateService) -> None:
    with httpx.Client(base_url=service.url, timeout=60.0, trust_env=False) as http:
        made = http.post(PATH, json={"session": "*", "question": TREND})
        assert made.status_code == 201, made.text
        name = made.json()["id"]
        for body, param in (({"question": "Will it rain?"}, "question"), ({"question": TREND, "id": "a|b"}, "id")):
            refused = http.post(PATH, json={"session": "*", **body})
            assert (refused.status_code, refused.json()["error"]["param"]) == (422, param)

        for process in ("engine", "consumer"):
            os.kill(service.process_ids(process)[-1], signal.SIGKILL)
        seen = until(lambda: (reply := http.get(PATH)).status_code == 200 and reply)
        assert [query["id"] for query in seen.json()["data"]] == [name]

        producer = KafkaProducer(bootstrap_servers=service.bootstrap.split(","))
        topic = service.environment["STREAM_ENGINE_KAFKA_STANDING_TOPIC"]
        value = json.dumps({"session": "EUR*", "question": TREND, "on": "commit"}).encode()
        producer.send(topic, key=b"by hand", value=value).get(60)
        producer.close()
        found = until(lambda: (reply := http.get(f"{PATH}/by%20hand")).status_code == 200 and reply.json())
        assert (found["session"], found["question"], found["on"]) == ("EUR*", TREND, "commit")

        for query in (name, "by%20hand"):
            assert http.delete(f"{PATH}/{query}").status_code == 200
            assert http.delete(f"{PATH}/{query}").status_code == 404
        assert http.get(PATH).json()["data"] == []
