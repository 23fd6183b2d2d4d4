"""A real HTTP server, a real board file and a scripted engine on the real sockets."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from stream_engine.board.layout import BoardMeta, SlotRecord
from stream_engine.board.writer import BoardWriter, SessionHandle
from stream_engine.client.metrics import value
from stream_engine.config.config import Config
from stream_engine.config.transport import TransportSettings
from stream_engine.decision.calibration import Knots
from stream_engine.decision.gate import ClassGate, FastAnswer
from stream_engine.decision.ready import Evidence, ReadyDistribution, StateFlag
from stream_engine.messages import (
    Answer,
    AnswerChanged,
    CalibrationReport,
    Committed,
    ErrorReply,
    Event,
    Status,
    StatusRequest,
)
from stream_engine.messages.transport import EngineServer
from stream_engine.model.profile import EMBEDDED, Profile

UP, DOWN, OTHER_TOKEN = 7, 8, 99
TAU = 2.0
TREND = "What is the trend?"

Handler = Callable[[Any], Any]


def answer(**changes: Any) -> Answer:
    """A full-path answer as the engine gives it."""
    values: dict[str, Any] = {
        "session": "AAPL", "question": TREND, "answer": "down", "class_": "trend", "path": "fallthrough",
        "gate": None, "gap": 1.25, "tau": None, "confidence": None, "fast_set_mass": 0.9, "session_version": 42,
        "topic": "market.bars", "partition": 1, "offset": 41, "event_time": "2026-01-02T03:04:05Z", "age_ms": 5,
        "latency_us": 0, "window_bars": 32, "bars": 32, "state": "LIVE", "entry_tokens": 6, "reused_tokens": 2,
        "model": "embedded",
    }  # fmt: skip
    return Answer(**(values | changes))


def changed(**changes: Any) -> AnswerChanged:
    """An event, or one answer of a snapshot."""
    values: dict[str, Any] = {
        "session": "AAPL", "query": "q1", "question": TREND, "answer": "up", "previous": "flat", "initial": False,
        "class_": "trend", "gap": 3.5, "confidence": None, "session_version": 42, "topic": "market.bars",
        "partition": 1, "offset": 41, "event_time": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    return AnswerChanged(**(values | changes))


def committed(session: str = "AAPL", version: int = 43) -> Committed:
    return Committed(
        session=session,
        session_version=version,
        bars=1,
        topic="market.bars",
        partition=1,
        offset=version - 1,
        event_time="2026-01-02T03:05:05Z",
    )


CALIBRATION = CalibrationReport(
    model="embedded",
    generic_class="trend",
    file=None,
    check_share=0.02,
    level=0.05,
    horizon=5000,
    classes=(),
    dropped={},
    waiting=0,
)


def status(**changes: Any) -> Status:
    values: dict[str, Any] = {
        "boot_id": "boot-a", "model": "embedded", "ready": True, "reasons": (), "uptime_s": 12.5,
        "oldest_work_s": 0.0, "consumers": 1, "partitions": (), "counters": {"commits_total": 3.0},
        "gauges": {"sessions": 2.0}, "lag": {"market.bars/2": 5}, "calibration": CALIBRATION,
    }  # fmt: skip
    return Status(**(values | changes))


class ScriptedEngine:
    """Answers each type of request with what ``on`` says, None meaning no answer at all."""

    def __init__(self, settings: TransportSettings) -> None:
        self.on: dict[type, Handler] = {StatusRequest: lambda _: status()}
        self.received: list[Any] = []
        self._outbox: queue.Queue[tuple[str, int, Event]] = queue.Queue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(settings,), daemon=True)
        self._thread.start()

    def publish(self, sequence: int, event: Event, boot_id: str = "boot-a") -> None:
        self._outbox.put((boot_id, sequence, event))

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.received if isinstance(message, kind)]

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self, settings: TransportSettings) -> None:
        server = EngineServer(settings)
        while not self._stop.is_set():
            for peer, message in server.receive(5):
                handler = self.on.get(type(message))
                reply = (
                    handler(message)
                    if handler
                    else ErrorReply(404, "not_found_error", f"no {type(message).__name__}")
                )
                self.received.append(message)
                if reply is not None:
                    server.send(peer, reply)
            while not self._outbox.empty():
                server.publish(*self._outbox.get())
        server.close()


@dataclass
class Board:
    """A board as an engine keeps it: sessions get slots with ``ready``."""

    path: Path
    lease_s: float = 3600.0
    profile_digest: str = field(default_factory=lambda: Profile.load(EMBEDDED).digest())
    writer: BoardWriter = field(init=False)
    sessions: dict[str, SessionHandle] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.writer = BoardWriter.create(self.path, self.meta(), 16, 64, 4, self.lease_s)

    def meta(self, tau: float = TAU, is_open: bool = True, curve: Knots = ()) -> BoardMeta:
        return BoardMeta(
            topics=("market.bars",),
            model="embedded",
            profile_digest=self.profile_digest,
            calibration_digest="c0ffee" if curve else "",
            window_bars=32,
            classes={"trend": ClassGate(tau, is_open)},
            answers={UP: FastAnswer("trend", "up"), DOWN: FastAnswer("trend", "down")},
            generic_class="trend",
            noise=1e-4,
            confidence={"trend": curve} if curve else {},
        )

    def ready(
        self,
        session: str = "AAPL",
        *,
        key: str = "",
        top1: int = UP,
        gap: float = 5.0,
        version: int = 42,
        flags: StateFlag = StateFlag.NONE,
        age_ms: int = 0,
        event_time_us: int = 1_767_323_045_000_000,
    ) -> None:
        """The session's live state, with one decision point, replaces what there was."""
        handle = self.sessions.get(session) or self.writer.open_session(session)
        self.sessions[session] = handle
        now_ms = int(time.time() * 1000)
        record = SlotRecord(
            entry_key=key,
            ready=ReadyDistribution(top1, DOWN, gap, gap, gap, 0.875, 200),
            evidence=Evidence(
                session_version=version,
                topic_index=0,
                partition=1,
                offset=version - 1,
                event_time_us=event_time_us,
                record_time_ms=now_ms - age_ms,
                bars=32,
                flags=flags,
            ),
            token_hash=version,
            ready_time_ms=now_ms,
        )
        self.writer.publish(handle, [record])


@dataclass
class Service:
    config: Config
    http: httpx.Client
    engine: ScriptedEngine
    board: Board | None
    end_streams: Callable[[], None]

    def close_board(self) -> None:
        """As an engine does that stops."""
        if self.board is not None:
            self.board.writer.close()
            self.board = None

    def ask(self, session: str = "AAPL", question: str = TREND, **fields: Any) -> httpx.Response:
        return self.http.post(f"/v1/sessions/{session}/query", json={"question": question, **fields})

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of ``/metrics``; 0 where it is not there."""
        return value(self.http.get("/metrics").text, name, **labels) or 0.0
