"""Fast answers over HTTP, checked by an engine in its idle time: the embedded model, and a planted fault."""

from __future__ import annotations

import random
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from query_api.app import create_app
from stream_engine.board.meta import board_meta
from stream_engine.board.writer import BoardWriter
from stream_engine.client.sse import EventFollower, ServerEvent
from stream_engine.config.board import BoardSettings
from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.engine.engine import Engine
from stream_engine.messages import Assign, Bar, ConsumerHello, Event, Record
from stream_engine.messages.transport import EngineLink
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Segment
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_gate import build_gate, build_monitor
from stream_engine.process.configured_model import model_identity
from stream_engine.process.service import EngineService
from stream_engine.session.cell_budget import BudgetShape
from stream_engine.state.engine_state import new_state
from stream_engine.state.live_gate import LiveGate
from stream_engine.state.publication import BoardPublication
from tests.support.batches import batch_of

TOPIC = "market.bars"
TREND = "What is the trend?"
PATIENCE_S = 120.0


class Planted:
    """A model whose header says "up", far above any tau, and whose full path says "down"."""

    def __init__(self, builder: TokenBuilder) -> None:
        self._header = builder.generic_entry
        self._tokens = {word: token for token, (kind, word) in builder.answers.items() if kind == "trend"}

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        return [
            SegmentResult(
                tuple(
                    Distribution(
                        self._tokens["up" if branch.tokens == self._header else "down"], 0, 40.0, 40.0, 41.0, 0.9
                    )
                    for branch in segment.branches
                )
            )
            for segment in segments
        ]

    def copy(self, source: int, target: int, count: int) -> None:
        """There are no cells."""


def planted_engine(config: Config) -> Callable[[Callable[[Event], None]], Engine]:
    def build(emit: Callable[[Event], None]) -> Engine:
        builder = TokenBuilder.load(EMBEDDED)
        gate, shape = build_gate(builder), BudgetShape(4, 1024 - 256, 4, 256, len(builder.prefix))
        board = BoardWriter.create(config.board.path, board_meta(builder.profile, gate), 16, 64, 4, 60.0)
        live = LiveGate(gate)
        publication = BoardPublication(board, builder.profile, live)
        state = new_state(config.engine, builder, shape, live, publication)
        identity = model_identity(config.engine, builder)
        monitor = build_monitor(config.risk, gate, None, identity, config.board.path)
        return Engine(config.engine, builder, Planted(builder), state, emit, monitor)

    return build


class Running:
    """Engine and API in threads of this process, on real sockets, and a consumer that is this test."""

    def __init__(self, config: Config, http: httpx.Client, link: EngineLink) -> None:
        self.config = config
        self.http = http
        self._link = link
        self._offset = 0
        link.send(ConsumerHello((TOPIC,)))
        link.send(Assign(TOPIC, 0, 1, 0, 0))

    def commit(self, bars: dict[str, float]) -> None:
        """One bar for each session: its close."""
        records = []
        for key, close in bars.items():
            bar = Bar(self._offset * 60_000_000, close, close + 0.01, close - 0.01, close, 1_000.0)
            records.append(Record(key, self._offset, int(time.time() * 1000), (bar,)))
            self._offset += 1
        first, last = records[0].offset, records[-1].offset
        self._link.send(batch_of(records, first - 1, last=last))

    def ask(self, session: str, **fields: Any) -> dict[str, Any]:
        """About the newest commit."""
        fresh = {"min_offset": {"partition": 0, "offset": self._offset - 1}, "wait_ms": 20_000}
        reply = self.http.post(f"/v1/sessions/{session}/query", json={"question": TREND, **fresh, **fields})
        assert reply.status_code == 200, reply.text
        body: dict[str, Any] = reply.json()
        return body

    def calibration(self) -> dict[str, Any]:
        body: dict[str, Any] = self.http.get("/v1/calibration").json()
        return body

    def trend(self) -> dict[str, Any]:
        (entry,) = [entry for entry in self.calibration()["classes"] if entry["class"] == "trend"]
        return dict(entry)

    def settled(self, checks: int) -> dict[str, Any]:
        """The risk once so many checks are made or dropped."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            told = self.calibration()
            done = sum(entry["checks_total"] for entry in told["classes"]) + sum(told["dropped"].values())
            if done >= checks:
                return told
            assert time.monotonic() < deadline, told
            time.sleep(0.02)


@contextmanager
def serving(
    folder: Path, build: Callable[[Config], Callable[[Callable[[Event], None]], Engine]] | None = None
) -> Iterator[Running]:
    config = Config(
        kafka=KafkaSettings(standing_topic=""),
        risk=RiskSettings(check_share=1.0, state_file=folder / "risk.json"),
        board=BoardSettings(path=folder / "board", lease_s=60.0),
        transport=TransportSettings(f"ipc://{folder}/e", f"ipc://{folder}/v"),
    )
    service = EngineService(config, build(config) if build else None)
    stop = threading.Event()
    engine = threading.Thread(target=service.run, args=(stop,))
    engine.start()
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(config)
    server = uvicorn.Server(uvicorn.Config(app, ws="none", lifespan="on", log_level="warning"))
    api = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    api.start()
    link = EngineLink(config.transport)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60.0) as http:
            while not server.started:
                time.sleep(0.01)
            yield Running(config, http, link)
    finally:
        app.state.api.events.end_streams()
        server.should_exit = True
        api.join()
        stop.set()
        engine.join()
        link.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="risk-") as name:
        yield Path(name)


def test_checks_of_the_embedded_model_find_what_asking_the_full_path_finds(folder: Path) -> None:
    chance = random.Random(4)
    closes = {"UP": 100.0, "DOWN": 300.0, "SIDE": 50.0}
    drift = {"UP": 0.15, "DOWN": -0.4, "SIDE": 0.0}
    fast = differ = 0
    with serving(folder) as running:
        for number in range(39):
            closes = {key: close + drift[key] + chance.gauss(0, 0.2) for key, close in closes.items()}
            running.commit(closes)
            if number < 32:
                continue
            for key in closes:
                answer = running.ask(key)
                if answer["path"] == "fast" and answer["gate"]:
                    fast += 1
                    full = running.ask(key, path="full")
                    assert full["session_version"] == answer["session_version"]
                    differ += full["answer"] != answer["answer"]
        assert fast > 12, "the gate fires for most of these windows"
        told = running.settled(fast)
        (trend,) = [entry for entry in told["classes"] if entry["class"] == "trend"]
        assert trend["checks_total"] + sum(told["dropped"].values()) == fast
        assert not set(name for name, count in told["dropped"].items() if count) - {"changed"}
        assert trend["checks_total"] > 6
        assert trend["false_accepts_total"] <= differ
        assert trend["false_accepts_total"] == differ or trend["checks_total"] < fast
        assert (trend["state"], trend["open"], trend["tau"]) == ("OPEN", True, trend["tau_configured"])
        assert trend["lower"] < trend["upper"] < 1.0
        text = running.http.get("/metrics").text
        assert f'stream_engine_risk_checks_total{{class="trend"}} {trend["checks_total"]:.1f}' in text
        assert 'query_api_checks_total{outcome="sent"}' in text  # the engine's own fast answers are not among them


def test_a_planted_fault_closes_the_fast_path_and_a_restart_leaves_it_closed(folder: Path) -> None:
    seen: list[ServerEvent] = []
    with serving(folder, planted_engine) as running:
        follower = EventFollower(str(running.http.base_url), trust_env=False)
        assert follower.connected.wait(PATIENCE_S)
        for number in range(40):
            running.commit({"A": 100.0 + number % 7})
        answers = [running.ask("A") for _ in range(10)]
        assert {answer["path"] for answer in answers} == {"fast"}
        running.settled(10)
        assert (running.trend()["checks"], running.trend()["state"]) == (1, "OPEN"), "one fault, seen ten times"
        answers = answers[:1]
        for asked in range(11, 51):
            running.commit({"A": 100.0 + asked % 7})
            answers.append(running.ask("A"))
            if answers[-1]["path"] != "fast":
                break
            running.settled(asked)
        assert {(answer["answer"], answer["gate"]) for answer in answers[:-1]} == {("up", True)}
        assert (answers[-1]["answer"], answers[-1]["gate"]) == ("down", None)
        assert len(answers) < 20
        assert len({answer["tau"] for answer in answers[:-1]}) == 2, "tau was raised before the class was closed"
        trend = running.trend()
        assert (trend["state"], trend["open"]) == ("CLOSED", False)
        assert trend["false_accepts_total"] == trend["checks_total"] == len(answers) - 1
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 2 and time.monotonic() < deadline:
            seen += [event for event in follower.drain() if event.name == "risk_changed"]
            time.sleep(0.01)
        assert [event.data["state"] for event in seen] == ["RAISED", "CLOSED"]
        follower.stop()
    with serving(folder, planted_engine) as running:
        for number in range(40):
            running.commit({"A": 100.0 + number % 7})
        assert running.ask("A")["answer"] == "down"
        assert running.trend()["state"] == "CLOSED"
        plain = running.http.post("/v1/sessions/A/query", json={"question": TREND}).json()
        assert (plain["answer"], plain["gate"]) == ("down", None)
        # The first question met the closed path as well, unless it came before its commit.
        assert re.search(
            r'^query_api_fast_path_total\{outcome="closed"\} [12]\.0$', running.http.get("/metrics").text, re.M
        )
