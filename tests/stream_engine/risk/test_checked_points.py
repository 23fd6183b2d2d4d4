"""Which decision points are known to have been checked, and that each is evidence once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stream_engine.config.risk import RiskSettings
from stream_engine.messages import Record
from stream_engine.risk.checked_points import DecisionPoints
from stream_engine.risk.memory import RiskMemory
from stream_engine.risk.monitor import RiskMonitor
from tests.support.checks import ALL, OTHER_WORDING, TREND, check_of, dropped


def test_the_last_ones_are_known() -> None:
    assert RiskSettings().horizon <= 8_192, "the detector's level is about so many checks"
    points = DecisionPoints([("A", 1)])
    for number in range(8_192):
        assert ("A", 1) in points
        points.add(("B", number))
        points.add(("B", number))
    assert ("A", 1) not in points
    assert list(points) == [("B", number) for number in range(8_192)]


def test_one_decision_point_is_evidence_once_however_often_it_is_asked_about(
    planted: Callable[..., Any], ask_anew: Callable[..., Any]
) -> None:
    """A fault that is there stays there: repeats of it would raise an alarm from a single one."""
    bench = planted("up", "down", risk=ALL)
    for question in (TREND, OTHER_WORDING) * 10:
        assert bench.ask("AAPL", question).path == "fast"
    (trend,) = bench.engine.verification.calibration().classes
    assert (trend.state, trend.checks, trend.false_accepts) == ("OPEN", 1, 1)
    assert dropped(bench) == {"repeated": 19}
    ask_anew(bench)
    assert bench.engine.verification.calibration().classes[0].checks == 2


def test_every_api_process_may_pick_a_decision_point_but_it_is_checked_once(
    planted: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """Handed over while the first one waits, or when it was made, or when a later point was checked."""
    bench = planted("up", "down", risk=ALL)
    desk, first = bench.engine.verification, check_of(bench)
    desk.offer(first)
    desk.offer(msgspec.structs.replace(first, question=OTHER_WORDING))
    assert (desk.calibration().waiting, dropped(bench)) == (1, {"repeated": 1})
    bench.engine.run_until_idle()
    bench.feed([make_record("AAPL", 40)], 39)
    second = check_of(bench)
    for check in (first, second, first, second):
        desk.offer(check)
        bench.engine.run_until_idle()
    assert (desk.calibration().classes[0].checks, dropped(bench)) == (2, {"repeated": 4})


def test_a_new_version_with_the_same_tokens_is_the_same_decision_point(
    planted: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """Also where tokens come back, as an open bar's may."""
    bench = planted("up", "down", risk=ALL)
    tokens = list(bench.engine.sessions["AAPL"].tokens)
    assert bench.ask("AAPL", TREND).session_version == 40
    for offset, close in ((40, 99.0), (41, None)):
        bench.feed([make_record("AAPL", offset, index=39, close=close)], offset - 1)
        assert bench.ask("AAPL", TREND).session_version == offset + 1
    assert bench.engine.sessions["AAPL"].tokens == tokens
    assert bench.engine.verification.calibration().classes[0].checks == 2
    assert dropped(bench) == {"repeated": 1}


def test_an_engine_that_starts_again_goes_on_from_what_was_checked(
    planted: Callable[..., Any], tmp_path: Path
) -> None:
    """Also when it was killed, if it had been idle for a moment. A question that is asked again is no news."""
    told = []
    for _ in range(3):
        bench = planted("up", "down", risk=ALL)
        monitor = RiskMonitor(ALL, bench.gate.classes, None, RiskMemory(tmp_path / "risk.json", "board", "gate"))
        bench.engine.verification.control.monitor = monitor
        assert bench.ask("AAPL", TREND).path == "fast"
        told.append((monitor.classes["trend"].report(), dropped(bench)))
        bench.engine.when_idle() if len(told) == 1 else bench.engine.close()
    assert told[0][0].checks == 1
    assert [report for report, _ in told] == [told[0][0]] * 3
    assert [reasons for _, reasons in told] == [{}, {"repeated": 1}, {"repeated": 1}]


def test_the_end_of_an_engine_keeps_the_last_checks(planted: Callable[..., Any], tmp_path: Path) -> None:
    bench, memory = planted("up", "down", risk=ALL), RiskMemory(tmp_path / "risk.json", "board", "gate")
    bench.engine.verification.control.monitor = RiskMonitor(ALL, bench.gate.classes, None, memory)
    bench.ask("AAPL", TREND)
    assert memory.load() == {}
    bench.engine.close()
    assert memory.load()["trend"].checks == 1


def test_a_decision_point_whose_check_was_dropped_may_be_checked_yet(planted: Callable[..., Any]) -> None:
    bench = planted("up", "up", risk=ALL)
    bench.engine.verification.offer(check_of(bench, question="x " * 2_000))
    bench.engine.run_until_idle()
    assert dropped(bench) == {"no_room": 1}
    bench.ask("AAPL", TREND)
    assert bench.engine.verification.calibration().classes[0].checks == 1


def test_a_fault_that_was_counted_is_none_of_the_raised_taus(
    planted: Callable[..., Any], ask_anew: Callable[..., Any]
) -> None:
    """Known faults that are asked about again would close the class by themselves."""
    bench = planted("up", "down", risk=ALL)
    while bench.engine.verification.calibration().classes[0].state == "OPEN":
        ask_anew(bench)
    bench.ask("AAPL", TREND)
    (trend,) = bench.engine.verification.calibration().classes
    assert (trend.state, trend.checks, dropped(bench)) == ("RAISED", 0, {"repeated": 1})
