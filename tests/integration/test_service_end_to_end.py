"""The whole service as `stream-engine serve` runs it: three processes, a real broker, the embedded model."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.options import Options
from stream_engine.client.sse import EventFollower, ServerEvent

PATIENCE_S = 180.0
WAIT_MS = 20_000
START = datetime(2024, 1, 2, tzinfo=UTC)
TREND = "Which way is it going?"


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
def publish(service: PrivateService) -> Iterator[Callable[[str, bytes], tuple[int, int]]]:
    """Sends one record; its partition and offset once the broker has it."""
    producer = KafkaProducer(bootstrap_servers=service.bootstrap.split(","), acks="all")

    def send(key: str, value: bytes) -> tuple[int, int]:
        written = producer.send(service.topic, key=key.encode(), value=value).get(30)
        return written.partition, written.offset

    yield send
    producer.close()


Publish = Callable[[str, bytes], tuple[int, int]]


def bar(number: int, close: float) -> dict[str, Any]:
    at = START + timedelta(days=number)
    return {"ts": at.isoformat(), "open": close - 0.4, "high": close + 1, "low": close - 1, "close": close}


def rising(first: int, count: int) -> bytes:
    """Bars of a clear rise that wobbles, as one record."""
    bars = [bar(number, 100 + 0.8 * number + math.sin(2.4 * number)) for number in range(first, first + count)]
    return json.dumps(bars).encode()


def ask(http: httpx.Client, session: str, question: str = TREND, **bounds: Any) -> httpx.Response:
    return http.post(f"/v1/sessions/{session}/query", json={"question": question, **bounds})


def bound(written: tuple[int, int]) -> dict[str, int]:
    return {"partition": written[0], "offset": written[1]}


def until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return found


def test_published_bars_are_committed_and_answered(
    service: PrivateService, http: httpx.Client, publish: Publish
) -> None:
    follower = EventFollower(service.url, trust_env=False, session="RISE")
    assert follower.connected.wait(PATIENCE_S)
    publish("RISE", rising(0, 40))
    written = publish("RISE", rising(40, 1))

    reply = ask(http, "RISE", min_offset=bound(written), wait_ms=WAIT_MS)

    assert reply.status_code == 200, reply.text
    answer = reply.json()
    assert (answer["answer"], answer["class"]) == ("up", "trend")
    assert (answer["topic"], answer["partition"], answer["offset"]) == (service.topic, *written)
    assert answer["session_version"] == written[1] + 1
    assert answer["event_time"] == (START + timedelta(days=40)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (answer["state"], answer["bars"], answer["window_bars"]) == ("LIVE", 32, 32)

    fast = until(lambda: (found := ask(http, "RISE").json())["path"] == "fast" and found)
    assert (fast["answer"], fast["gate"], fast["offset"]) == ("up", True, written[1])
    # Asked again and again before the pre-position came, the question has been promoted: no gate then.
    assert fast["routed_by"] == "exact" or fast["gap"] > fast["tau"]
    full = ask(http, "RISE", path="full").json()
    assert (full["answer"], full["gate"], full["offset"]) == ("up", None, written[1])
    assert full["path"] in ("fallthrough", "cold")
    assert full["entry_tokens"] > 0

    seen: list[ServerEvent] = []
    until(lambda: seen.extend(follower.drain()) or any(e.data.get("offset") == written[1] for e in seen))
    follower.stop()
    assert {event.data["session"] for event in seen if event.name == "committed"} == {"RISE"}


def test_a_stamp_ahead_of_the_clock_meets_no_age_until_an_honest_one_comes(
    service: PrivateService, http: httpx.Client
) -> None:
    key = "AHEAD"
    producer = KafkaProducer(bootstrap_servers=service.bootstrap.split(","), acks="all")

    def send(value: bytes, timestamp_ms: int) -> dict[str, int]:
        sent = producer.send(service.topic, key=key.encode(), value=value, timestamp_ms=timestamp_ms).get(30)
        return bound((sent.partition, sent.offset))

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    written = send(rising(0, 40), now_ms())
    assert ask(http, key, min_offset=written, max_age_ms=60_000, wait_ms=WAIT_MS).json()["age_ms"] < 60_000
    # Fifty minutes: a broker of default settings takes what is less than an hour ahead.
    written = send(rising(40, 1), now_ms() + 3_000_000)
    for path in ("auto", "full"):
        assert ask(http, key, path=path, min_offset=written, wait_ms=WAIT_MS).json()["age_ms"] is None
        refused = ask(http, key, path=path, max_age_ms=2**60)
        assert (refused.status_code, refused.json()["error"]["type"]) == (409, "freshness_not_met")
    written = send(rising(41, 1), now_ms())
    assert ask(http, key, min_offset=written, max_age_ms=60_000, wait_ms=WAIT_MS).json()["age_ms"] < 60_000
    producer.close()


def test_a_standing_query_is_answered_on_every_change_and_read_by_its_wording(
    service: PrivateService, http: httpx.Client, publish: Publish
) -> None:
    question = "Where is the price in its range?"
    made = http.post("/v1/standing-queries", json={"session": "STAND*", "question": question, "id": "where"})
    assert made.status_code == 201, made.text
    follower = EventFollower(service.url, trust_env=False, session="STANDING")
    written = publish("STANDING", rising(0, 40))

    event = until(lambda: next((e for e in follower.drain() if e.name == "answer_changed"), None))
    follower.stop()
    assert (event.data["query"], event.data["initial"], event.data["offset"]) == ("where", True, written[1])
    answer = ask(http, "STANDING", question).json()
    assert (answer["path"], answer["answer"], answer["class"]) == ("fast", event.data["answer"], "position")
    assert http.delete("/v1/standing-queries/where").status_code == 200


def test_a_poison_record_is_dead_lettered_and_its_partition_goes_on(
    service: PrivateService, http: httpx.Client, publish: Publish
) -> None:
    publish("POISON", rising(0, 33))
    poison = publish("POISON", b'{"open": 1, "high": ')
    after = publish("POISON", rising(33, 1))
    assert poison[0] == after[0]

    answer = ask(http, "POISON", min_offset=bound(after), wait_ms=WAIT_MS)

    assert answer.status_code == 200, answer.text
    assert answer.json()["offset"] == after[1]
    letters = KafkaConsumer(bootstrap_servers=service.bootstrap.split(","), consumer_timeout_ms=30_000)
    partition = TopicPartition(f"{service.topic}.dlq", 0)
    letters.assign([partition])
    letters.seek_to_beginning(partition)
    letter = next(iter(letters))
    letters.close()
    headers = dict(letter.headers)
    assert (letter.key, letter.value) == (b"POISON", b'{"open": 1, "high": ')
    assert headers["topic"] == service.topic.encode()
    assert (headers["partition"], headers["offset"]) == (str(poison[0]).encode(), str(poison[1]).encode())
    assert headers["reason"]


def test_a_client_reads_its_own_writes(http: httpx.Client, publish: Publish) -> None:
    publish("OWN", rising(0, 33))
    for number in range(33, 43):
        written = publish("OWN", rising(number, 1))
        answer = ask(http, "OWN", min_offset=bound(written), wait_ms=WAIT_MS)
        assert answer.status_code == 200, answer.text
        assert answer.json()["offset"] == written[1]
        assert answer.json()["event_time"] == (START + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%SZ")

    ahead = {"partition": written[0], "offset": written[1] + 1000}
    for wait_ms in (0, 200):
        refused = ask(http, "OWN", min_offset=ahead, wait_ms=wait_ms)
        assert refused.status_code == 409
        assert refused.json()["error"]["type"] == "freshness_not_met"


def test_the_commands_publish_and_ask(service: PrivateService, tmp_path: Path) -> None:
    rows = [f"{bar(n, 50 - n * 0.5)['ts']},{60 - n},{99},{0.5},{50 - n * 0.5}" for n in range(40)]
    # A row again, and one that is no bar: the number told is the number kept.
    rows += [rows[-1], f"{bar(40, 1)['ts']},1,1,2,1"]
    file = tmp_path / "fall.csv"
    file.write_text("\n".join(["Date,Open,High,Low,Close", *rows]))

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "stream_engine.cli", *arguments],
            env=service.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert command("produce", str(file), "--symbol", "FALL/X", "--speed", "0").startswith("40 bars of 1 symbols")
    with httpx.Client(base_url=service.url, trust_env=False) as client:
        until(lambda: client.get("/v1/sessions/FALL%2FX").json().get("bars") == 40)
    answer = json.loads(command("query", "FALL/X", TREND, "--json"))
    assert (answer["session"], answer["answer"]) == ("FALL/X", "down")
    assert "FALL/X" in command("watch", "--once")


def test_an_engine_that_is_killed_never_leaves_a_stale_answer(
    service: PrivateService, http: httpx.Client, publish: Publish
) -> None:
    before = publish("CRASH", rising(0, 40))
    live = ask(http, "CRASH", min_offset=bound(before), wait_ms=WAIT_MS).json()["session_version"]
    starts = len(service.process_ids("engine"))

    os.kill(service.process_ids("engine")[-1], signal.SIGKILL)
    written = publish("CRASH", rising(40, 1))
    refused: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, f"not answered again; refused with {set(refused)}"
        unbounded, reply = ask(http, "CRASH"), ask(http, "CRASH", min_offset=bound(written))
        if unbounded.status_code == 200:  # within the lease nothing newer was applied: that state is the live one
            assert unbounded.json()["session_version"] >= live
        if reply.status_code == 200:
            break
        refused.append(reply.status_code)
        time.sleep(0.05)

    assert set(refused) <= {404, 409, 503}
    assert 503 in refused
    answer = reply.json()
    assert (answer["offset"], answer["session_version"]) == (written[1], written[1] + 1)
    assert answer["session_version"] > live
    assert http.get("/v1/sessions/CRASH").json()["bars"] == 41
    assert len(service.process_ids("engine")) == starts + 1
    until(lambda: http.get("/health/ready").status_code == 200)


def test_a_stop_leaves_no_process(service: PrivateService) -> None:
    pids = [service.process_ids(name)[-1] for name in ("engine", "consumer", "api")]
    log = service.log_file

    assert service.stop() == 0

    assert not any(Path(f"/proc/{pid}").exists() for pid in [*pids, service.supervisor_pid])
    lines = [line for line in log.read_text().splitlines() if line.endswith(": stopped") or line == "stopping"]
    assert lines == ["stopping", "api: stopped", "consumer: stopped", "engine: stopped"]
