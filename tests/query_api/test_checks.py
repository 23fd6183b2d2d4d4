"""Fast answers that are picked for a check, and how a client sees the watched risk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from query_api.fast_path import FastPath
from query_api.metrics import ApiMetrics
from stream_engine.decision.entry import entry_key
from stream_engine.decision.route import Route
from stream_engine.messages import (
    CalibrationFacts,
    CalibrationReport,
    Check,
    ClassRisk,
    Query,
    RiskChanged,
    Snapshot,
    StatusRequest,
)
from stream_engine.model.profile import EMBEDDED, Profile
from tests.support.api_service import TREND, UP, Board, Service, changed, status
from tests.support.event_stream import serve_snapshots, stream

TREND_RISK = ClassRisk(
    class_="trend", state="RAISED", open=True, tau=3.0, tau_configured=2.0, budget=0.02, checks=40,
    false_accepts=1, rate=0.025, lower=0.001, upper=0.12, evidence=7.5, threshold=100_000.0, checks_total=45,
    false_accepts_total=6
)  # fmt: skip
REPORT = CalibrationReport(
    model="embedded",
    generic_class="trend",
    file=CalibrationFacts(
        digest="c0ffee",
        created="2026-01-02T03:04:05Z",
        r_max=0.02,
        delta=0.05,
        chosen={"trend": "certified"},
        certified={"trend": True},
    ),
    check_share=0.02,
    level=0.05,
    horizon=5_000,
    classes=(TREND_RISK,),
    dropped={"changed": 3, "engine_behind": 0},
    waiting=2,
)
CHANGED = RiskChanged(
    class_="trend",
    state="CLOSED",
    previous="RAISED",
    tau=3.0,
    tau_before=3.0,
    open=False,
    budget=0.02,
    checks=40,
    false_accepts=9,
    lower=0.08,
    upper=0.41,
    evidence=2e5,
    threshold=1e5,
)


@pytest.fixture
def fast_path(folder: Path) -> Callable[..., FastPath]:
    def make(share: float, chance: Callable[[], float] = lambda: 0.5) -> FastPath:
        return FastPath(folder / "board", 0, lambda: None, ApiMetrics(), check_share=share, chance=chance)

    return make


@pytest.fixture
def board(folder: Path) -> Board:
    return Board(folder / "board")


GENERIC = Route(entry_key(TREND), Profile.load(EMBEDDED).generic_class)


def test_a_gated_answer_is_picked_with_all_that_a_check_needs(
    fast_path: Callable[..., FastPath], board: Board
) -> None:
    board.ready("AAPL", gap=5.0, version=42)
    path = fast_path(1.0)
    assert path.answer(Query("AAPL", "Trend, please?"), GENERIC) is not None
    assert list(path.checks) == [
        Check(
            session="AAPL",
            question="Trend, please?",
            question_class="trend",
            session_version=42,
            position=200,
            token=UP,
            gap=5.0,
            token_hash=42,
        )
    ]


def test_chance_picks_the_configured_share(fast_path: Callable[..., FastPath], board: Board) -> None:
    board.ready()
    numbers = [0.019, 0.02, 0.5, 0.001]
    left = iter(numbers)
    path = fast_path(0.02, lambda: next(left))
    for _ in numbers:
        assert path.answer(Query("AAPL", TREND), GENERIC) is not None
    assert len(path.checks) == 2
    never = fast_path(0.0, lambda: 0.0)
    assert never.answer(Query("AAPL", TREND), GENERIC) is not None
    assert not never.checks


def test_what_no_gate_let_through_is_not_picked(fast_path: Callable[..., FastPath], board: Board) -> None:
    path = fast_path(1.0)
    board.ready(gap=0.5)
    assert path.answer(Query("AAPL", TREND), GENERIC) is None
    below = path.answer(Query("AAPL", TREND, path="fast"), GENERIC)
    assert below is not None
    assert below.gate is False
    board.ready(key=entry_key(TREND))  # a question's own distribution is that of its full path
    assert path.answer(Query("AAPL", TREND), GENERIC) is not None
    assert not path.checks


def test_checks_that_nobody_fetches_do_not_pile_up(fast_path: Callable[..., FastPath], board: Board) -> None:
    board.ready()
    path = fast_path(1.0)
    for _ in range(64 + 5):
        path.answer(Query("AAPL", TREND), GENERIC)
    assert len(path.checks) == 64


def test_the_engine_gets_the_check_after_the_reply(make_service: Callable[..., Service]) -> None:
    service = make_service(check_share=1.0)
    service.engine.on[Check] = lambda _: None
    service.board.ready(gap=5.0)
    assert service.ask().json()["path"] == "fast"
    deadline = time.monotonic() + 10
    while not service.engine.of(Check) and time.monotonic() < deadline:
        time.sleep(0.005)
    (check,) = service.engine.of(Check)
    assert (check.session, check.question, check.question_class, check.token) == ("AAPL", TREND, "trend", UP)
    assert service.metric("query_api_checks_total", outcome="sent") == 1
    service.engine.close()
    for _ in range(200):  # more than the pipe to an engine that is away may hold
        assert service.ask().json()["path"] == "fast"
    assert service.metric("query_api_checks_total", outcome="dropped") > 0


def test_calibration_shows_gate_and_risk(service: Service) -> None:
    service.engine.on[StatusRequest] = lambda _: status(calibration=REPORT)
    body = service.http.get("/v1/calibration").json()
    assert (body["model"], body["check_share"], body["waiting"]) == ("embedded", 0.02, 2)
    assert body["file"]["certified"] == {"trend": True}
    assert body["dropped"] == {"changed": 3, "engine_behind": 0}
    (trend,) = body["classes"]
    assert trend == {
        "class": "trend", "state": "RAISED", "open": True, "tau": 3.0, "tau_configured": 2.0, "budget": 0.02,
        "checks": 40, "false_accepts": 1, "rate": 0.025, "lower": 0.001, "upper": 0.12, "evidence": 7.5,
        "threshold": 100000.0, "checks_total": 45, "false_accepts_total": 6,
    }  # fmt: skip


def test_calibration_without_an_engine_is_503(service: Service) -> None:
    service.engine.on[StatusRequest] = lambda _: None
    assert service.http.get("/v1/calibration").status_code == 503


def test_metrics_of_the_risk(service: Service) -> None:
    service.engine.on[StatusRequest] = lambda _: status(calibration=REPORT)
    values = {
        "risk_checks_total": 45, "risk_false_accepts_total": 6, "risk_rate": 0.025, "risk_rate_lower": 0.001,
        "risk_rate_upper": 0.12, "risk_budget": 0.02, "risk_evidence": 7.5, "risk_threshold": 100_000,
        "gate_tau": 3.0, "gate_open": 1,
    }  # fmt: skip
    for name, value in values.items():
        assert service.metric(f"stream_engine_{name}", **{"class": "trend"}) == value, name
    assert service.metric("stream_engine_risk_state", **{"class": "trend", "state": "RAISED"}) == 1
    assert service.metric("stream_engine_risk_checks_dropped_total", reason="changed") == 3


def test_risk_changed_is_an_event_of_every_session_and_of_no_standing_query(service: Service) -> None:
    serve_snapshots(service, Snapshot(0, ()))
    with stream(service, session="AAPL") as of_session, stream(service, query="q1") as of_query:
        of_session.next()
        of_query.next()
        service.engine.publish(1, CHANGED)
        name, data, _ = of_session.skip_heartbeats()
        assert (name, data["class"], data["state"], data["open"]) == ("risk_changed", "trend", "CLOSED", False)
        assert (data["checks"], data["false_accepts"], data["lower"]) == (40, 9, 0.08)
        service.engine.publish(2, changed(query="q1"))
        assert of_query.skip_heartbeats()[0] == "answer_changed"
