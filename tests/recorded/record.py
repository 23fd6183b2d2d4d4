"""Makes a recording with the version that is checked out: ``make recording RECORDING=tests/recorded/2``.

A broker and a service of their own; bars in many forms, trades, corrections, dead letters, standing queries over
HTTP and on the topic, a window swap, a session that is long quiet, one that is deleted, an open bar, questions
that are checked.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from kafka import KafkaProducer

from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.options import Options
from stream_engine.config.config import Config
from stream_engine.localkafka import TemporaryKafka
from tests.recorded.recording import (
    BOARD,
    CALIBRATION,
    COMMITTED,
    PATIENCE_S,
    RISK,
    STATE,
    Recording,
    model_files,
    read_committed,
    read_topics,
)

START = datetime(2026, 3, 2, 14, 30, tzinfo=UTC)
QUIET_RECORDS = 30
TREND, POSITION, WAY = "What is the trend?", "Where is the price in its range?", "Which way is it going?"
ASKED = (TREND, "Is it rising or falling?", WAY, "Up or down?", "What is the direction?", "Trend?")
"""Many wordings: one that is asked often would be promoted, and then needs no check."""


class Market:
    """Writes records to chosen partitions, one after the other."""

    def __init__(self, bootstrap: str, bars: str, trades: str, standing: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=0)
        self.bars, self._trades, self._standing = bars, trades, standing
        self.random = random.Random(20260302)
        self.last: dict[tuple[str, int], int] = {}

    def put(self, topic: str, partition: int, key: str | None, value: Any, **headers: str) -> int:
        data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        named = [(name, text.encode()) for name, text in headers.items()]
        sent = self._producer.send(
            topic, key=None if key is None else key.encode(), value=data, partition=partition, headers=named
        )
        offset = int(sent.get(PATIENCE_S).offset)
        self.last[topic, partition] = offset
        return offset

    def bar(self, key: str | None, value: Any, partition: int = 0, **headers: str) -> int:
        return self.put(self.bars, partition, key, value, **headers)

    def trade(self, key: str | None, value: Any) -> int:
        return self.put(self._trades, 0, key, value)

    def standing(self, key: str, value: Any) -> int:
        return self.put(self._standing, 0, key, value)

    def price(self, number: int, drift: float, base: float) -> tuple[float, float, float, float]:
        """Open, high, low, close of a drift that wobbles."""
        close = base + drift * number + 1.5 * math.sin(number / 3) + self.random.uniform(-0.6, 0.6)
        opened = close - self.random.uniform(-0.5, 0.5)
        return (
            round(opened, 2),
            round(max(opened, close) + 0.3, 2),
            round(min(opened, close) - 0.3, 2),
            round(close, 2),
        )

    def close(self) -> None:
        self._producer.close()


def at(number: float, seconds: int = 60) -> datetime:
    return START + timedelta(seconds=number * seconds)


def plain(market: Market, number: int, drift: float, base: float) -> dict[str, Any]:
    opened, high, low, close = market.price(number, drift, base)
    return {
        "ts": at(number).isoformat(),
        "open": opened,
        "high": high,
        "low": low,
        "close": close,
        "volume": 1000 + number,
    }


def short(market: Market, number: int, drift: float, base: float) -> dict[str, Any]:
    """Epoch milliseconds, short names, numbers as text, no volume."""
    opened, high, low, close = (str(price) for price in market.price(number, drift, base))
    return {
        "t": int(at(number).timestamp() * 1000),
        "o": opened,
        "h": high,
        "l": low,
        "c": close,
        "sym": "EURUSD=X",
    }


def history(market: Market) -> None:
    """What is there before anybody asks."""
    for number in range(3):
        market.bar("DELETED", plain(market, number, 0.1, 20), 1)
    for number in range(60):  # the region holds 64: the window is swapped later on
        market.bar("AAPL", plain(market, number, 0.4, 180), traceparent=f"00-{number:032x}-{number:016x}-01")
    for number in range(0, 60, 5):
        market.bar("MSFT", [plain(market, at, -0.3, 400) for at in range(number, number + 5)], 1)
    for number in range(36):
        market.bar("EURUSD=X", short(market, number, 0.0, 100), 1)
    for number in range(35):
        market.bar("QUIET", plain(market, number, 0.1, 50))
    for number in range(5):
        market.bar("SHORT", plain(market, number, 0.1, -3), 1)
    # Not as they should be.
    market.bar("AAPL", b'{"open": 1, "high": ')
    market.bar("MSFT", [plain(market, 60, -0.3, 400), {"ts": at(61).isoformat(), "open": 1}], 1)
    market.bar(None, plain(market, 60, 0.4, 180))
    market.bar("AAPL", plain(market, 60, 0.4, 180) | {"symbol": "GOOG"})
    market.bar("AAPL", plain(market, -30 * 24 * 60, 0.4, 180))  # later than late
    market.bar("EURUSD=X", short(market, 35, 0.0, 100.5), 1)  # the last bar again, with other prices
    market.bar("AAPL", plain(market, 57, 0.4, 180))  # a correction inside the region


def ticks(market: Market, first: int, count: int) -> None:
    """Three trades a minute of BTC/USD; before them, a single one of ETH/USD that stays open."""
    if first == 0:
        for number in range(3):
            market.trade("ETH/USD", {"p": 3000 + number, "q": 1, "ts": at(number).isoformat()})
    for number in range(first, first + count):
        for part in range(3):
            price = round(60_000 + 40 * number + 25 * math.sin(number + part), 1)
            trade = {"price": price, "size": 0.25, "id": f"t{number}-{part}"}
            market.trade("BTC/USD", trade | {"time": at(number + part / 3).isoformat()})


def until(what: Callable[[], Any], why: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited in vain: {why}"
        time.sleep(0.05)
    return found


def ask(client: httpx.Client, session: str, question: str, path: str = "auto") -> dict[str, Any]:
    reply = client.post(f"/v1/sessions/{quoted(session)}/query", json={"question": question, "path": path})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def quoted(session: str) -> str:
    return session.replace("/", "%2F").replace("=", "%3D")


def listed(client: httpx.Client, what: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in client.get(f"/v1/{what}").json()["data"]}


def has_come_to(client: httpx.Client, session: str, version: int) -> bool:
    return bool(listed(client, "sessions")[session]["data_version"] == version)


def bars_and_questions(market: Market, client: httpx.Client, wordings: Iterator[str]) -> None:
    """A bar each, then a question each, which the board answers and the engine checks."""
    sessions = {"AAPL": (0, 0.4, 180), "MSFT": (1, -0.3, 400)}
    for number in range(62, 96):
        for key, (partition, drift, base) in sessions.items():
            market.bar(key, plain(market, number, drift, base), partition)
        versions = {key: market.last[market.bars, partition] + 1 for key, (partition, *_) in sessions.items()}
        for key, version in versions.items():
            until(partial(has_come_to, client, key, version), f"{key} {version}")
            ask(client, key, next(wordings))


def settled(service: PrivateService, market: Market) -> bool:
    """Everything that was written is committed."""
    points = read_committed(service.bootstrap, service.kafka.group_id, market.last)
    ends = {(point["topic"], point["partition"]): point["offset"] for point in points}
    sources = {place: last for place, last in market.last.items() if place[0] in service.kafka.source_topics}
    return all(ends.get(place, 0) > last for place, last in sources.items())


def calibrate(folder: Path) -> None:
    command = [sys.executable, "-m", "stream_engine.cli", "calibrate", "sample", "--out", str(folder)]
    subprocess.run([*command, "--windows", "20", "--simulated", "200"], check=True)


def settings(name: str, calibration: Path) -> dict[str, str]:
    """By environment, as deployments are configured. The risk watch is touchy, so that it moves within a demo."""
    return {
        "STREAM_ENGINE_KAFKA_BARS_TOPIC": f"{name}.bars",
        "STREAM_ENGINE_KAFKA_TRADES_TOPIC": f"{name}.trades",
        "STREAM_ENGINE_KAFKA_WINDOWS_TOPIC": f"{name}.windows",
        "STREAM_ENGINE_KAFKA_STANDING_TOPIC": f"{name}.standing-queries",
        "STREAM_ENGINE_KAFKA_ANSWERS_TOPIC": f"{name}.answers",
        "STREAM_ENGINE_KAFKA_GROUP_ID": name,
        "STREAM_ENGINE_KAFKA_PARTITIONS": "2",
        "STREAM_ENGINE_KAFKA_OPEN_BAR": "true",
        "STREAM_ENGINE_KAFKA_BARS_RETENTION_DAYS": "0",
        "STREAM_ENGINE_KAFKA_TRADES_RETENTION_DAYS": "0",
        "STREAM_ENGINE_KAFKA_DEAD_LETTER_RETENTION_DAYS": "0",
        "STREAM_ENGINE_ENGINE_QUIET_RECORDS": str(QUIET_RECORDS),
        "STREAM_ENGINE_ENGINE_KV_MEMORY": "24MiB",
        "STREAM_ENGINE_ENGINE_CALIBRATION": str(calibration),
        "STREAM_ENGINE_BOARD_SLOTS": "64",
        "STREAM_ENGINE_BOARD_MAX_SESSIONS": "16",
        "STREAM_ENGINE_RISK_CHECK_SHARE": "1.0",
        "STREAM_ENGINE_RISK_LEVEL": "0.8",
        "STREAM_ENGINE_RISK_HORIZON": "10",
    }


def use(service: PrivateService, market: Market, client: httpx.Client) -> None:
    """What people do with the service, in the end all of it settled."""

    def register(session: str, question: str, on: str, name: str) -> None:
        body = {"session": session, "question": question, "on": on, "id": name}
        assert client.post("/v1/standing-queries", json=body).status_code == 201

    register("*", TREND, "change", "trend")
    register("AAPL", POSITION, "commit", "where")
    register("MSFT", WAY, "change", "gone")
    market.standing("way", {"session": "EUR*", "question": WAY})
    market.standing("rain", {"session": "*", "question": "Will it rain?"})
    market.standing("spoilt", b"{")
    history(market)
    ticks(market, 0, 40)
    until(lambda: settled(service, market), "the history is committed")
    assert client.delete("/v1/standing-queries/gone").status_code == 200
    assert client.delete("/v1/sessions/DELETED").status_code == 200
    market.trade("AAPL", {"price": 200, "size": 1, "ts": at(70).isoformat()})  # fed by bars already
    market.trade("BTC/USD", {"price": "dear", "size": 1, "ts": at(41).isoformat()})
    bars_and_questions(market, client, itertools.cycle(ASKED))
    ticks(market, 40, 12)
    until(lambda: settled(service, market), "all is committed")


def state_of(service: PrivateService, client: httpx.Client) -> dict[str, Any]:
    """What a successor has to come back with."""
    sessions = listed(client, "sessions")
    classes = (TREND, POSITION)
    answers = [ask(client, name, question, "full") for name in sessions for question in classes]
    kept = ("session", "question", "answer", "gap", "session_version", "offset", "event_time", "bars")
    return {
        "group": service.kafka.group_id,
        "sessions": list(listed(client, "sessions").values()),
        "standing_queries": list(listed(client, "standing-queries").values()),
        "calibration": client.get("/v1/calibration").json(),
        "answers": [{name: answer[name] for name in kept} for answer in answers],
    }


def slots_of(board: Path, sessions: Iterable[str]) -> dict[str, Any]:
    """The generic header's slot of each session, as this version reads it."""
    reader = BoardReader.open(board, 0)
    found = {}
    for session in sessions:
        slot = reader.read(session, "")
        if isinstance(slot, ReadySlot):
            found[session] = {
                "version": slot.evidence.session_version,
                "offset": slot.evidence.offset,
                "bars": slot.evidence.bars,
                "position": slot.ready.position,
                "top1": slot.ready.top1,
                "gap": slot.ready.gap,
                "token_hash": f"{slot.token_hash:016x}",
            }
    return found


def record(recording: Recording) -> None:
    folder = recording.folder
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="stream-engine-recording-"))
    try:
        calibrate(work)
        shutil.copy(work / CALIBRATION, folder / CALIBRATION)
        used = settings(f"recorded-{recording}", folder.absolute() / CALIBRATION)
        with TemporaryKafka() as broker, PrivateService(Options(None, "info"), broker.bootstrap, used) as service:
            service.await_ready(3 * PATIENCE_S)
            config = Config.load(env=service.environment)
            kafka = service.kafka
            market = Market(broker.bootstrap, kafka.bars_topic, kafka.trades_topic, kafka.standing_topic)
            with httpx.Client(base_url=service.url, timeout=30.0, trust_env=False) as client:
                use(service, market, client)
                time.sleep(2.0)  # the last checks, and the next report of the consumer
                state = state_of(service, client)
                time.sleep(1.0)
                state["slots"] = slots_of(config.board.path, listed(client, "sessions"))
                board = config.board.path.read_bytes()
                state["clock_ns"] = time.monotonic_ns()
                recording.write_board(board)
            market.close()
            assert service.stop() == 0, service.log_tail()
            shutil.copy(config.risk.state_file, folder / RISK)
            suffix = kafka.dead_letter_suffix
            sources = [*kafka.source_topics, kafka.standing_topic]
            topics = [*sources, *(topic + suffix for topic in sources), kafka.windows_topic, kafka.answers_topic]
            records = read_topics(broker.bootstrap, topics)
            recording.write_records(records)
            places = [(topic, number) for topic in kafka.source_topics for number in range(kafka.partitions)]
            recording.write_json(COMMITTED, read_committed(broker.bootstrap, kafka.group_id, places))
            state["model_files"] = model_files()
            state["topics"] = topics
            state["settings"] = {name: value for name, value in used.items() if not name.endswith("CALIBRATION")}
            recording.write_json(STATE, state)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{len(records)} records of {len(topics)} topics, {size / 1024:.0f} KiB in {folder}; board {BOARD}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the recording is written")
    record(Recording(parser.parse_args().folder))
