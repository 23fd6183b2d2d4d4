"""The states of a watched class: what moves them, what they make of its gate, and what is told."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from stream_engine.config.risk import RiskSettings
from stream_engine.decision.calibration import ClassCalibration
from stream_engine.decision.gate import ClassGate
from stream_engine.risk.memory import RiskMemory
from stream_engine.risk.monitor import RiskMonitor, RiskState, WatchedClass
from tests.support.calibrations import calibration

SETTINGS = RiskSettings(budget=0.02, level=0.05, horizon=5_000, tau_step=0.75)


@pytest.fixture
def watched() -> WatchedClass:
    return WatchedClass("trend", ClassGate(2.0), SETTINGS)


def alarm(watched: WatchedClass) -> int:
    """Faults only, until the evidence passes."""
    return next(count for count in range(1, 100) if watched.record(True))


def test_evidence_raises_tau_then_closes_the_class_and_that_is_the_end(watched: WatchedClass) -> None:
    assert (watched.state, watched.gate) == (RiskState.OPEN, ClassGate(2.0))
    first = alarm(watched)
    watched.advance()
    assert (watched.state, watched.gate) == (RiskState.RAISED, ClassGate(2.75))
    assert watched.detector.evidence == 0.0
    assert alarm(watched) == first, "the detector starts anew"
    watched.advance()
    assert (watched.state, watched.gate) == (RiskState.CLOSED, ClassGate(2.75, open=False))
    assert not any(watched.record(True) for _ in range(50)), "there is no state behind CLOSED"


def test_clean_checks_move_nothing(watched: WatchedClass) -> None:
    assert not any(watched.record(False) for _ in range(2_000))
    assert watched.state is RiskState.OPEN
    report = watched.report()
    assert (report.checks, report.false_accepts, report.rate, report.lower) == (2_000, 0, 0.0, 0.0)
    assert report.upper < SETTINGS.budget, "two thousand clean checks do show that the budget is kept"
    assert report.evidence < report.threshold / 1_000


def test_counts_and_bounds_are_about_the_present_tau(watched: WatchedClass) -> None:
    before = watched.report()
    assert (before.rate, before.lower, before.upper) == (None, 0.0, 1.0)
    faults = alarm(watched)
    passed = watched.report()
    assert (passed.checks, passed.false_accepts, passed.rate) == (faults, faults, 1.0)
    assert passed.evidence >= passed.threshold
    assert passed.lower > passed.budget
    watched.advance()
    watched.record(False)
    after = watched.report()
    assert (after.state, after.tau, after.tau_configured) == ("RAISED", 2.75, 2.0)
    assert (after.checks, after.false_accepts, after.rate) == (1, 0, 0.0)
    assert (after.checks_total, after.false_accepts_total) == (faults + 1, faults)


def test_a_class_that_is_configured_closed_stays_closed() -> None:
    assert WatchedClass("trend", ClassGate(2.0, open=False), SETTINGS).gate == ClassGate(2.0, open=False)


def test_classes_move_apart() -> None:
    monitor = RiskMonitor(SETTINGS, {"trend": ClassGate(1.0), "volume": ClassGate(3.0)})
    alarm(monitor.classes["trend"])
    monitor.classes["trend"].advance()
    assert monitor.gates() == {"trend": ClassGate(1.75), "volume": ClassGate(3.0)}


def test_the_budget_is_the_calibrations_unless_it_is_set() -> None:
    made_for = calibration({"trend": ClassCalibration(1.0, "c", True)}, r_max=0.01, delta=0.05)
    classes = {"trend": ClassGate(1.0)}
    assert RiskMonitor(RiskSettings(), classes).settings.budget == 0.02
    assert RiskMonitor(RiskSettings(budget=0.3), classes, made_for).settings.budget == 0.3
    monitor = RiskMonitor(RiskSettings(), classes, made_for)
    assert monitor.classes["trend"].report().budget == 0.01
    assert monitor.facts is not None
    assert (monitor.facts.r_max, monitor.facts.certified) == (0.01, {"trend": True})
    assert monitor.facts.digest == made_for.digest()


def test_what_is_closed_stays_closed_over_a_restart_but_not_under_another_gate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, classes = tmp_path / "state" / "risk.json", {"trend": ClassGate(1.0), "volume": ClassGate(3.0)}

    def start(of: str = "gate a") -> RiskMonitor:
        return RiskMonitor(SETTINGS, classes, None, RiskMemory(path, "board", of))

    first = start()
    assert not first.moved
    assert "before the restart" not in caplog.text
    first.advance(first.classes["trend"])
    assert start().gates() == {"trend": ClassGate(1.75), "volume": ClassGate(3.0)}
    second = start()
    second.advance(second.classes["trend"])
    third = start()
    assert "class trend: CLOSED, as before the restart (risk.state_file)" in caplog.text
    assert "class volume" not in caplog.text
    assert third.moved
    assert third.classes["trend"].state is RiskState.CLOSED
    assert third.classes["volume"].state is RiskState.OPEN
    assert not start("gate b").moved


@pytest.mark.parametrize("moves", [0, 1])
def test_a_restart_between_two_checks_changes_nothing(moves: int, tmp_path: Path) -> None:
    """Evidence, bounds, counts, what was checked, and the check at which the alarm comes."""
    chance, classes = random.Random(moves), {"trend": ClassGate(1.0)}

    def start() -> RiskMonitor:
        return RiskMonitor(SETTINGS, classes, None, RiskMemory(tmp_path / "risk.json", "board", "gate"))

    through = RiskMonitor(SETTINGS, classes)
    for monitor in (through, start()):
        for _ in range(moves):
            alarm(monitor.classes["trend"])
            monitor.advance(monitor.classes["trend"])
    rang = False
    for number in range(200):
        differs = number > 20 and chance.random() < 0.2
        restarted = start()
        assert restarted.classes["trend"].kept() == through.classes["trend"].kept()
        assert restarted.classes["trend"].report() == through.classes["trend"].report()
        told = []
        for monitor in (through, restarted):
            watched = monitor.classes["trend"]
            watched.points.add(("AAPL", number))
            told.append(watched.record(differs))
        restarted.keep()
        assert told[0] == told[1]
        if told[0]:
            rang = True
            break
    assert rang


def test_evidence_is_about_one_tau_and_one_budget(tmp_path: Path) -> None:
    """What was decided stays decided when these settings change; what was counted is of the past."""
    classes = {"trend": ClassGate(1.0)}

    def start(settings: RiskSettings) -> WatchedClass:
        memory = RiskMemory(tmp_path / "risk.json", "board", "gate")
        return RiskMonitor(settings, classes, None, memory).classes["trend"]

    first = RiskMonitor(SETTINGS, classes, None, RiskMemory(tmp_path / "risk.json", "board", "gate"))
    faults = alarm(first.classes["trend"])
    first.advance(first.classes["trend"])
    first.classes["trend"].record(True)
    first.keep()
    assert start(SETTINGS).checks == 1
    for settings in (replace(SETTINGS, tau_step=0.5), replace(SETTINGS, budget=0.05)):
        changed = start(settings)
        assert (changed.state, changed.checks, changed.detector.evidence) == (RiskState.RAISED, 0, 0.0)
        assert (changed.report().checks_total, changed.report().false_accepts_total) == (faults + 1, faults + 1)
