"""Signs of life: who beats, who is silent, and what an ended process leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_engine.util import pulse as module
from stream_engine.util.pulse import Awake, Pulse, PulseWatch, sweep

PATIENCE_S = 60.0
BEATS = """
import sys, time
from pathlib import Path
from stream_engine.util.pulse import Pulse
pulse = Pulse(Path(sys.argv[1]), "engine")
print("up", flush=True)
while True:
    pulse.beat()
    time.sleep(0.05)
"""


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def beating(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", BEATS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


def watch(folder: Path, hung_after_s: float = 30.0) -> PulseWatch:
    return PulseWatch(folder, "engine", hung_after_s, 600.0)


def silence(folder: Path, started: float, awake_since: float = 0.0) -> str | None:
    return watch(folder).silence(os.getpid(), started, awake_since)


def until(condition: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_who_beats_is_not_silent_and_who_has_stopped_is(tmp_path: Path, clock: Clock) -> None:
    pulse = Pulse(tmp_path, "engine")
    pulse.beat()
    clock.now += 20
    pulse.beat()
    clock.now += 30
    assert silence(tmp_path, 900) is None
    clock.now += 1
    assert silence(tmp_path, 900) == "no sign of life for 31 s"
    pulse.beat()
    assert silence(tmp_path, 900) is None
    pulse.close()
    assert list(tmp_path.iterdir()) == []


def test_a_start_has_a_limit_of_its_own(tmp_path: Path, clock: Clock) -> None:
    pulse = Pulse(tmp_path, "engine")
    clock.now += 600
    assert silence(tmp_path, 1_000) is None
    clock.now += 1
    assert silence(tmp_path, 1_000) == "it has not begun its work within 601 s"
    pulse.beat()
    assert silence(tmp_path, 1_000) is None
    pulse.close()


def test_the_beat_of_an_earlier_process_of_this_id_is_no_beat_of_this_one(tmp_path: Path, clock: Clock) -> None:
    Pulse(tmp_path, "engine").beat()
    clock.now += 40
    assert silence(tmp_path, started=1_010) is None
    assert silence(tmp_path, started=990) is not None


def test_nobody_is_hung_because_the_judge_slept(tmp_path: Path, clock: Clock) -> None:
    pulse, awake = Pulse(tmp_path, "engine"), Awake(6.0)
    pulse.beat()
    clock.now += 5
    assert awake.look() == 1_000
    clock.now += 3_600
    assert silence(tmp_path, 900, awake.look()) is None
    for _ in range(6):
        clock.now += 5
        assert silence(tmp_path, 900, awake.look()) is None
    clock.now += 5
    assert silence(tmp_path, 900, awake.look()) == "no sign of life for 35 s"
    pulse.close()


def test_a_beat_is_written_once_a_second(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[float] = []
    pulse = Pulse(tmp_path, "engine")
    monkeypatch.setattr(module, "_write", lambda _, at: written.append(at))
    for _ in range(100):
        pulse.beat()
        clock.now += 0.25
    assert written == [1_000.0 + second for second in range(25)]
    pulse.close()


def test_a_folder_that_something_sweeps_has_the_sign_again(tmp_path: Path, clock: Clock) -> None:
    pulse = Pulse(tmp_path, "engine")
    pulse.beat()
    for path in tmp_path.iterdir():
        path.unlink()
    clock.now += 1
    pulse.beat()
    clock.now += 1
    pulse.beat()
    assert silence(tmp_path, 1_001) is None
    assert watch(tmp_path).ailments() == []
    pulse.close()


def test_a_sign_that_cannot_be_written_is_told_once_and_stops_nobody(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulse = Pulse(tmp_path, "engine")

    def full(descriptor: int, at: float) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "_write", full)
        for _ in range(3):
            pulse.beat()
            clock.now += 1
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the sign of life cannot be written, going on without"
    ]
    pulse.beat()
    assert silence(tmp_path, 900) is None
    pulse.close()


@pytest.mark.parametrize("stopped_by", [signal.SIGSTOP, signal.SIGKILL])
def test_a_probe_fails_while_a_process_is_stopped_or_gone(
    tmp_path: Path, beating: subprocess.Popen[str], stopped_by: signal.Signals
) -> None:
    probe = watch(tmp_path, hung_after_s=2.0)
    until(lambda: probe.ailments() == [])
    beating.send_signal(stopped_by)
    until(lambda: probe.ailments() != [])
    (said,) = probe.ailments()
    if stopped_by is signal.SIGSTOP:
        assert said.startswith(f"engine, process {beating.pid}: no sign of life for ")
        beating.send_signal(signal.SIGCONT)
        until(lambda: probe.ailments() == [])
    else:
        assert said == f"no engine runs that has its sign of life in {tmp_path}"


def test_one_that_is_silent_is_not_hidden_by_another_that_beats(
    tmp_path: Path, beating: subprocess.Popen[str]
) -> None:
    pulse = Pulse(tmp_path, "engine")
    probe = watch(tmp_path, hung_after_s=2.0)
    assert f"engine, process {os.getpid()}: it has not begun its work yet" in probe.ailments()
    pulse.beat()
    until(lambda: (pulse.beat(), probe.ailments() == [])[1])
    beating.send_signal(signal.SIGSTOP)
    until(lambda: (pulse.beat(), probe.ailments() != [])[1])
    assert [said.partition(":")[0] for said in probe.ailments()] == [f"engine, process {beating.pid}"]
    pulse.close()


def test_what_a_killed_process_left_is_removed_and_what_lives_is_left_alone(
    tmp_path: Path, beating: subprocess.Popen[str]
) -> None:
    living = {path.name for path in tmp_path.iterdir()}
    (tmp_path / "engine-4194305.life").write_text("1000.0")
    (tmp_path / "consumer-4194305.life").write_text("1000.0")
    sweep(tmp_path, "engine")
    assert {path.name for path in tmp_path.iterdir()} == {*living, "consumer-4194305.life"}
    beating.kill()
    beating.wait()
    Pulse(tmp_path, "engine").close()
    assert [path.name for path in tmp_path.iterdir()] == ["consumer-4194305.life"]


def test_a_link_is_neither_followed_nor_read(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("99999999999.0")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / f"engine-{os.getpid()}.life").symlink_to(target)
    with pytest.raises(OSError, match=r"engine-\d+\.life"):
        Pulse(folder, "engine")
    assert target.read_text() == "99999999999.0"
    assert silence(folder, time.monotonic()) is None


@pytest.mark.parametrize("content", ["", "later\n", "nan\n", "99999999999.0\n", "\xff" * 30])
def test_what_is_no_time_is_no_beat(tmp_path: Path, content: str) -> None:
    (tmp_path / f"engine-{os.getpid()}.life").write_text(content)
    assert silence(tmp_path, time.monotonic()) is None
    assert silence(tmp_path, time.monotonic() - 700) is not None
