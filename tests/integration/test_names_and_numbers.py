"""Whatever is legal on the way in is shown and asked on every way out: names of any script, numbers at the
edges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from kafka import KafkaProducer

from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.http import session_path
from stream_engine.client.options import Options
from stream_engine.client.sse import EventFollower

PATIENCE_S = 180.0
TREND = "What is the trend?"
START_S = 1_700_000_000
LARGEST = sys.float_info.max

NAMES = [
    "Газпром", "日経 225", "أرامكو", "🚀", "e\u0301toile", "한국", "BTC/USD", "a//b", "50%", "%2F", "..", ".", "/",
    'a "b" c', "it's", "[red]x[/red]", "[/]", "back\\slash", "?q=1", "#1", "*", "a|b", "<b>", "=1+1",
    "&amp;", "a;b", "--once",
    "a" * 200, "ж" * 200,
]  # fmt: skip
NUMBERS: dict[str, tuple[list[float], float | None]] = {
    "zero": ([0.0] * 3, 0.0),
    "negative": ([-37.63, -40.32, 0.5], 7.0),
    "tiny": ([1e-12, 2e-12, 5e-12], 1e-9),
    "subnormal": ([5e-324, 1e-323, 5e-324], 5e-324),
    "huge": ([1e15, 9e15, 3e15], 1e15),
    "largest": ([LARGEST, -LARGEST, LARGEST], LARGEST),
    "unknown volume": ([1.0, 2.0, 3.0], None),
}


@pytest.fixture(scope="module")
def service(kafka: Any) -> Iterator[PrivateService]:
    with PrivateService(Options(None, "info"), kafka.bootstrap) as started:
        started.await_ready(PATIENCE_S)
        yield started


@pytest.fixture(scope="module")
def http(service: PrivateService) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=60.0, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def publish(service: PrivateService) -> Iterator[Callable[[str, list[float], float | None], dict[str, int]]]:
    """One record of forty bars that go through the closes; what ``min_offset`` asks for to see them."""
    producer = KafkaProducer(bootstrap_servers=service.bootstrap.split(","), acks="all")

    def send(key: str, closes: list[float], volume: float | None) -> dict[str, int]:
        rows = [
            {"t": START_S + 60 * n, "o": close, "h": close, "l": close, "c": close, "v": volume}
            for n, close in enumerate(closes[n % len(closes)] for n in range(40))
        ]
        written = producer.send(service.topic, key=key.encode(), value=json.dumps(rows).encode()).get(30)
        return {"partition": written.partition, "offset": written.offset}

    yield send
    producer.close()


def command(service: PrivateService, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "stream_engine.cli", *arguments[:1], "--url", service.url, *arguments[1:]],
        env=os.environ | {"COLUMNS": "400", "PYTHONIOENCODING": "utf-8"} | environment,
        capture_output=True,
        timeout=PATIENCE_S,
    )


def strict(text: str) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_every_script_and_every_sign_names_a_session_on_every_way_out(
    service: PrivateService, http: httpx.Client, publish: Any
) -> None:
    follower = EventFollower(service.url, trust_env=False)
    assert follower.connected.wait(PATIENCE_S)
    asked = http.post("/v1/standing-queries", json={"session": "*", "question": TREND, "id": "[/]\u2028\x1b[31m"})
    assert asked.status_code == 201, asked.text
    written = {name: publish(name, [100.0, 101.0, 103.0], 5.0) for name in NAMES}
    for name in NAMES:
        body = {"question": TREND, "min_offset": written[name], "wait_ms": 20_000}
        answer = http.post(f"{session_path(name)}/query", json=body)
        assert (answer.status_code, answer.json().get("session")) == (200, name), answer.text
        assert http.get(session_path(name)).json()["id"] == name
    listed = {row["id"] for row in strict(http.get("/v1/sessions?limit=1000").text)["data"]}
    assert listed >= set(NAMES)
    seen: set[str] = set()
    deadline = time.monotonic() + PATIENCE_S
    while not seen >= set(NAMES) and time.monotonic() < deadline:
        seen |= {event.data["session"] for event in follower.drain() if event.name == "answer_changed"}
        time.sleep(0.1)
    follower.stop()
    assert seen >= set(NAMES)
    assert http.get("/metrics").status_code == 200

    watched = command(service, "watch", "--once")
    assert watched.returncode == 0, watched.stderr
    shown = watched.stdout.decode()
    assert all(name in shown for name in NAMES)
    assert "\x1b" not in shown
    assert "[/]\\u2028\\x1b[31m" in shown
    for name in ("Газпром", "أرامكو", "..", "a//b", "[red]x[/red]"):
        told = command(service, "query", name, TREND)
        assert told.returncode == 0, told.stderr
        assert told.stdout.decode().startswith(f"{name}: ")
    narrow = command(service, "query", "日経 225", TREND, PYTHONIOENCODING="iso-8859-1")
    assert narrow.returncode == 0, narrow.stderr
    assert narrow.stdout.startswith(b"\\u65e5\\u7d4c 225: ")
    assert command(service, "watch", "--once", PYTHONIOENCODING="iso-8859-1").returncode == 0
    for name in NAMES:
        assert http.delete(session_path(name)).status_code == 200, name
    assert http.delete(f"/v1/standing-queries/{quote('[/]' + chr(0x2028) + chr(27) + '[31m', safe='')}").is_success


def test_numbers_at_the_edges_are_shown_and_asked(
    service: PrivateService, http: httpx.Client, publish: Any
) -> None:
    for name, (closes, volume) in NUMBERS.items():
        written = publish(name, closes, volume)
        for path in ("auto", "full"):
            body = {"question": TREND, "path": path, "min_offset": written, "wait_ms": 20_000}
            reply = http.post(f"{session_path(name)}/query", json=body)
            assert reply.status_code == 200, reply.text
            assert strict(reply.text)["class"] == "trend"
        session = strict(http.get(session_path(name)).text)
        assert [bar[4] for bar in session["last_bars"]] == [closes[n % 3] for n in range(35, 40)]
        assert session["last_bars"][-1][5] == volume
        told = command(service, "query", name, TREND)
        assert told.returncode == 0, told.stderr
    strict(http.get("/v1/sessions?limit=1000").text)
    watched = command(service, "watch", "--once")
    assert watched.returncode == 0, watched.stderr
    assert all(name in watched.stdout.decode() for name in NUMBERS)
    assert http.get("/health/ready").status_code == 200
