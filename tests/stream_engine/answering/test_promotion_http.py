"""Promotion as a client sees it: the engine process on its sockets and board, and a real HTTP server before it."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from query_api.app import create_app
from stream_engine.board.meta import board_meta
from stream_engine.board.writer import BoardWriter
from stream_engine.client.metrics import value
from stream_engine.config.board import BoardSettings
from stream_engine.config.config import Config
from stream_engine.config.engine import EngineSettings
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.decision.gate import ClassGate, FastAnswer, Gate
from stream_engine.messages import Ack, Assign, Record
from stream_engine.messages.transport import EngineLink
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.service import EngineService
from tests.support.batches import batch_of

TOPIC = "market.bars"
MOMENTUM = "What is the momentum?"
PATIENCE_S = 30.0


class Clock:
    """Of promotion only."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("stream_engine.answering.promotion.time", made)
    return made


@pytest.fixture
def http(
    clock: Clock, make_bench: Callable[..., Any], make_record: Callable[..., Record], builder: TokenBuilder
) -> Iterator[httpx.Client]:
    """An API before an engine that holds 40 bars of AAPL."""
    folder = Path(tempfile.mkdtemp(prefix="se-"))  # Unix sockets have short paths
    config = Config(
        kafka=KafkaSettings(standing_topic=""),
        engine=EngineSettings(stuck_after_s=60.0),
        board=BoardSettings(path=folder / "board", lease_s=3600.0),
        transport=TransportSettings(f"ipc://{folder}/engine", f"ipc://{folder}/events"),
    )
    answers = {token: FastAnswer(*answer) for token, answer in builder.answers.items()}
    gate = Gate({"trend": ClassGate(2.0)}, answers, 0.0)
    board = BoardWriter.create(config.board.path, board_meta(builder.profile, gate), 16, 64, 1, 3600.0)

    def build(emit: Any) -> Any:
        return make_bench(board=board, promotion_half_life_s=100.0, emit=emit).engine

    service, stop = EngineService(config, build), threading.Event()
    engine = threading.Thread(target=service.run, args=(stop,), daemon=True)
    engine.start()
    link = EngineLink(config.transport)
    records = tuple(make_record("AAPL", offset) for offset in range(40))
    link.send(Assign(TOPIC, 0, 1, 0, 0))
    link.send(batch_of(records, last=39, consumed=40))
    assert any(isinstance(message, Ack) for message in link.drain(int(PATIENCE_S * 1000)))
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(config)
    server = uvicorn.Server(uvicorn.Config(app, loop="uvloop", ws="none", lifespan="on", log_level="warning"))
    api = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    api.start()
    while not server.started:
        time.sleep(0.005)
    with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=PATIENCE_S) as client:
        yield client
    app.state.api.events.end_streams()
    server.should_exit = True
    api.join(PATIENCE_S)
    link.close()
    stop.set()
    engine.join(PATIENCE_S)
    shutil.rmtree(folder)


def ask(http: httpx.Client, question: str = MOMENTUM) -> dict[str, Any]:
    reply = http.post("/v1/sessions/AAPL/query", json={"question": question})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def metric(http: httpx.Client, name: str) -> float:
    found = value(http.get("/metrics").text, name)
    assert found is not None, f"no {name}"
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_question_asked_three_times_is_fast_until_nobody_asks_it(http: httpx.Client, clock: Clock) -> None:
    first = [ask(http) for _ in range(3)]
    assert "fast" not in {answer["path"] for answer in first}
    assert {answer["routed_by"] for answer in first} == {"listed"}
    fourth = ask(http)
    assert (fourth["path"], fourth["gate"], fourth["routed_by"]) == ("fast", True, "exact")
    assert (fourth["answer"], fourth["gap"]) == (first[-1]["answer"], first[-1]["gap"])
    assert metric(http, "stream_engine_questions_promoted") == 1
    # Its readers keep it: the engine never hears of these questions, and counts the reads of the slot.
    for read in range(2, 8):
        assert ask(http)["path"] == "fast"
        clock.ahead += 50.0
        until(lambda read=read: metric(http, "stream_engine_promoted_reads_total") == read)
    clock.ahead += 2_000.0
    until(lambda: metric(http, "stream_engine_questions_promoted") == 0)
    assert ask(http)["path"] != "fast"
    assert metric(http, "stream_engine_questions_demoted_total") == 1
