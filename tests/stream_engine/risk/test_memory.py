"""The file of the watched risk: whose it is, how it is written, and what becomes of one that cannot be read."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_engine.config.risk import RiskSettings
from stream_engine.decision.gate import ClassGate
from stream_engine.messages import ClassRisk
from stream_engine.risk.memory import KeptClass, RiskMemory
from stream_engine.risk.monitor import RiskMonitor
from stream_engine.util.lockfile import held
from tests.support.hostile import NESTED, mutated

CLOSED, RAISED = ({"trend": KeptClass(state)} for state in ("CLOSED", "RAISED"))
FULL = KeptClass(
    state="RAISED",
    tau=2.5,
    budget=0.02,
    checks=40,
    false_accepts=3,
    past_checks=12,
    past_false_accepts=5,
    sums=[0.1, 1e-9, 123456.789],
    points=[("AAPL", 2**64 - 1), ("MSFT", 0)],
)


def test_all_of_a_class_comes_back(tmp_path: Path) -> None:
    memory = RiskMemory(tmp_path / "folder" / "risk.json", "board", "gate")
    assert memory.load() == {}
    assert memory.save({"trend": FULL, "volume": KeptClass()})
    assert memory.load() == {"trend": FULL, "volume": KeptClass()}
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["risk.json"]


def test_services_and_gates_may_share_a_file(tmp_path: Path) -> None:
    """Two services on the same model neither close nor open each other's classes."""
    path = tmp_path / "risk.json"
    first, other_gate = RiskMemory(path, "board", "gate a"), RiskMemory(path, "board", "gate b")
    other_service = RiskMemory(path, "another board", "gate a")
    first.save(CLOSED)
    assert (other_gate.load(), other_service.load()) == ({}, {})
    other_gate.save(RAISED)
    other_service.save({"trend": KeptClass("OPEN")})
    assert first.load() == CLOSED
    assert other_gate.load() == RAISED
    assert other_service.load() == {"trend": KeptClass("OPEN")}


def test_the_points_of_a_gate_of_before_are_let_go(tmp_path: Path) -> None:
    """They are many, and of windows that are gone: the file would grow with every calibration."""
    before, now = (RiskMemory(tmp_path / "risk.json", "board", name) for name in ("gate a", "gate b"))
    before.save({"trend": FULL})
    now.save({"trend": FULL})
    assert before.load() == {"trend": msgspec.structs.replace(FULL, points=[])}
    assert now.load() == {"trend": FULL}


def test_engines_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "risk.json"
    memories = [RiskMemory(path, f"board {number}", "gate") for number in range(4)]
    together = threading.Barrier(len(memories))
    saved: list[bool] = []

    def write(memory: RiskMemory, number: int) -> None:
        for checks in range(20):
            together.wait()
            saved.append(memory.save({"trend": KeptClass("CLOSED", checks=checks + number)}))

    threads = [threading.Thread(target=write, args=(memory, number)) for number, memory in enumerate(memories)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(saved)
    assert [memory.load()["trend"].checks for memory in memories] == [19, 20, 21, 22]
    assert [found.name for found in tmp_path.iterdir()] == ["risk.json"], "no draft, no lock is left"


def test_a_lock_that_is_never_given_back_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = RiskMemory(tmp_path / "risk.json", "board", "gate")
    with held(tmp_path / "risk.json.lock"):
        assert not memory.save(CLOSED)
    assert "another process holds its lock" in caplog.text
    assert memory.save(CLOSED)
    assert memory.load() == CLOSED


def test_files_of_old_have_states_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "risk.json"
    path.write_bytes(b'{"gate a": {"trend": "CLOSED", "volume": "OPEN"}, "gate b": {"trend": "RAISED"}}')
    memory = RiskMemory(path, "board", "gate a")
    assert memory.load() == {"trend": KeptClass("CLOSED"), "volume": KeptClass("OPEN")}
    monitor = RiskMonitor(RiskSettings(), {"trend": ClassGate(1.0)}, None, memory)
    assert monitor.gates() == {"trend": ClassGate(2.0, open=False)}
    assert memory.save({"trend": FULL})
    assert memory.load() == {"trend": FULL}
    assert RiskMemory(path, "board", "gate b").load() == RAISED
    assert "unreadable" not in caplog.text


def test_another_number_of_alternatives_is_another_detector(tmp_path: Path) -> None:
    memory = RiskMemory(tmp_path / "risk.json", "board", "gate")
    memory.save({"trend": KeptClass("OPEN", 1.0, 0.02, 40, 3, sums=[7.0])})
    (watched,) = RiskMonitor(RiskSettings(), {"trend": ClassGate(1.0)}, None, memory).classes.values()
    assert (watched.checks, watched.past_checks, watched.detector.evidence) == (0, 40, 0.0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"gate": {"trend": "AJAR"}}',
        b'{"board": {"gate": {"trend": {"state": "AJAR"}}}}',
        b'{"board": {"gate": {"trend": {"checks": -1}}}}',
        b'{"board": {"gate": {"trend": {"checks": 1, "false_accepts": 2}}}}',
        b'{"board": {"gate": {"trend": {"sums": [-1.0, null]}}}}',
        b'{"board": {"gate": {"trend": {"sums": [1e308, 1e308]}}}}',
        b'{"board": {"gate": {"trend": {"sums": [' + b"0.0," * 100 + b"0.0]}}}}",
        b'{"board": {"gate": {"\xff": {}}}}',
        NESTED,
        b" " * (64 * 2**20 + 1),
    ],
)
def test_a_file_that_cannot_be_read_is_told_and_ignored(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "risk.json"
    path.write_bytes(content)
    memory = RiskMemory(path, "board", "gate")
    assert memory.load() == {}
    assert "risk.state_file" in caplog.text
    assert memory.save(CLOSED)
    assert memory.load() == CLOSED


VALID = {"board": {"gate": {"trend": msgspec.to_builtins(FULL)}}}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutated(VALID).map(lambda made: msgspec.json.encode(made)) | st.binary(max_size=50))
def test_whatever_the_file_says_a_monitor_starts_and_can_be_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "risk.json"
    path.write_bytes(content)
    monitor = RiskMonitor(
        RiskSettings(), {"trend": ClassGate(2.5, True)}, memory=RiskMemory(path, "board", "gate")
    )
    for _ in range(3):
        monitor.classes["trend"].detector.observe(True)
    report = monitor.classes["trend"].report()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=ClassRisk) == report


def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    memory = RiskMemory(tmp_path / "file" / "risk.json", "board", "gate")
    assert not any(memory.save(CLOSED) for _ in range(3))
    assert caplog.text.count("a restart opens what is closed") == 1
