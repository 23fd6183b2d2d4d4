"""The supervisor on small real processes: restarts, limits, order of a stop, and what outlives what."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stream_engine.cli.supervisor import ChildSpec, RestartPolicy, Supervisor
from stream_engine.util.pulse import PulseWatch

PATIENCE_S = 60.0
QUICK = RestartPolicy(first_delay_s=0.02, longest_delay_s=0.1, limit=4, window_s=600.0)
SLEEPS = "import time; time.sleep(600)"
STUBBORN = (
    "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
)


def child(name: str, script: str, *arguments: str, final: frozenset[int] = frozenset()) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", script, *arguments), final)


class Running:
    """A supervisor on a thread, its lines in a queue."""

    def __init__(self, *children: ChildSpec, is_ready: Callable[[], bool] | None = None) -> None:
        self.lines: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        self.supervisor = Supervisor(
            children, self._queue.put, QUICK, stop_timeout_s=2.0, is_ready=is_ready, ready_line="all ready"
        )
        self.status: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.status = self.supervisor.run()

    def line(self, beginning: str) -> str:
        """The next line that begins so."""
        while True:
            line = self._queue.get(timeout=PATIENCE_S)
            self.lines.append(line)
            if line.startswith(beginning):
                return line

    def pid(self, name: str) -> int:
        return int(self.line(f"{name}: started, pid ").rpartition(" ")[2])

    def end(self) -> list[str]:
        """Every line, once it has ended."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        while not self._queue.empty():
            self.lines.append(self._queue.get())
        return self.lines


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*children: ChildSpec, is_ready: Callable[[], bool] | None = None) -> Running:
        started.append(Running(*children, is_ready=is_ready))
        return started[-1]

    yield start
    for run in started:
        run.supervisor.stop()
        run.end()


def alive(pid: int) -> bool:
    """A process that has ended and waits to be reaped is not alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_a_stop_ends_the_children_in_reverse_order(running: Callable[..., Running]) -> None:
    service = running(child("engine", SLEEPS), child("consumer", SLEEPS), child("api", SLEEPS))
    pids = [service.pid(name) for name in ("engine", "consumer", "api")]

    service.supervisor.stop()
    lines = service.end()

    assert service.status == 0
    assert lines[-4:] == ["stopping", "api: stopped", "consumer: stopped", "engine: stopped"]
    assert not any(alive(pid) for pid in pids)


def test_a_child_that_dies_is_started_again_and_the_others_are_left_alone(running: Callable[..., Running]) -> None:
    service = running(child("engine", SLEEPS), child("api", SLEEPS))
    engine, api = service.pid("engine"), service.pid("api")

    os.kill(engine, signal.SIGKILL)

    assert service.line("engine: ended") == "engine: ended by SIGKILL: starting it again in 0.0 s"
    again = service.pid("engine")
    assert again != engine
    assert alive(again)
    assert alive(api)


def test_a_child_that_ends_well_unasked_is_started_again(running: Callable[..., Running]) -> None:
    service = running(child("once", "pass"))
    first = service.pid("once")
    assert service.line("once: ended").startswith("once: ended with status 0: starting it again")
    assert service.pid("once") != first


def test_a_child_that_keeps_dying_is_given_up_and_all_are_stopped(running: Callable[..., Running]) -> None:
    service = running(child("engine", SLEEPS), child("api", "raise SystemExit(3)"))
    engine = service.pid("engine")

    lines = service.end()

    assert service.status == 1
    assert sum(line.startswith("api: started") for line in lines) == QUICK.limit
    assert any(line.startswith("api: ended with status 3, for the 4th time") for line in lines)
    delays = [float(line.rpartition("in ")[2].removesuffix(" s")) for line in lines if "again in" in line]
    assert len(delays) == QUICK.limit - 1
    assert lines[-1] == "engine: stopped"
    assert not alive(engine)


def test_a_status_that_no_restart_can_help_ends_it_at_once(running: Callable[..., Running]) -> None:
    service = running(child("engine", "raise SystemExit(2)", final=frozenset({2})), child("api", SLEEPS))

    lines = service.end()

    assert service.status == 1
    assert sum(line.startswith("engine: started") for line in lines) == 1
    assert any("another start cannot help" in line for line in lines)


def test_what_does_not_stop_in_time_is_killed(running: Callable[..., Running], tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    service = running(child("engine", STUBBORN, str(deaf)))
    pid = service.pid("engine")
    until(deaf.exists)

    service.supervisor.stop()
    lines = service.end()

    assert lines[-1] == "engine: did not stop within 2 s: killed"
    assert not alive(pid)


def test_ready_is_told_once_for_each_time_it_becomes_so(running: Callable[..., Running]) -> None:
    asked: list[int] = []

    def is_ready() -> bool:
        asked.append(1)
        return len(asked) != 1  # not at the first look

    service = running(child("engine", SLEEPS), is_ready=is_ready)
    pid = service.pid("engine")
    service.line("all ready")
    os.kill(pid, signal.SIGKILL)
    service.pid("engine")
    service.line("all ready")

    service.supervisor.stop()
    assert sum(line == "all ready" for line in service.end()) == 2


BEATS = """
import pathlib, sys, time
from stream_engine.util.pulse import Pulse
folder = pathlib.Path(sys.argv[1])
pulse = Pulse(folder, "engine")
first = not (folder / "once").exists()
(folder / "once").touch()
while True:
    if not (first and (folder / "spin").exists()):
        pulse.beat()
    time.sleep(0.05)
"""


def beating(folder: Path, script: str = BEATS, start_s: float = 600.0) -> ChildSpec:
    command = (sys.executable, "-c", script, str(folder))
    return ChildSpec("engine", command, pulse=PulseWatch(folder, "engine", 2.0, start_s))


@pytest.mark.parametrize("how", ["stopped", "spinning"])
def test_a_child_that_hangs_is_killed_and_started_again(
    running: Callable[..., Running], tmp_path: Path, how: str
) -> None:
    service = running(beating(tmp_path), child("api", SLEEPS))
    engine, api = service.pid("engine"), service.pid("api")
    until(lambda: beating(tmp_path).pulse.ailments() == [])  # type: ignore[union-attr]

    if how == "stopped":
        os.kill(engine, signal.SIGSTOP)
    else:
        (tmp_path / "spin").touch()

    assert service.line("engine: hung").startswith("engine: hung, no sign of life for ")
    assert service.line("engine: ended").startswith("engine: ended by SIGKILL: starting it again")
    again = service.pid("engine")
    until(lambda: beating(tmp_path).pulse.ailments() == [])  # type: ignore[union-attr]
    assert not alive(engine)
    assert alive(again)
    assert alive(api)
    service.supervisor.stop()
    assert sum(line.startswith("engine: hung") for line in service.end()) == 1


def test_a_child_that_never_begins_its_work_is_killed(running: Callable[..., Running], tmp_path: Path) -> None:
    service = running(beating(tmp_path, SLEEPS, start_s=2.0))
    first = service.pid("engine")
    assert service.line("engine: hung").startswith("engine: hung, it has not begun its work within ")
    assert service.pid("engine") != first


def test_a_long_start_is_no_hang(running: Callable[..., Running], tmp_path: Path) -> None:
    service = running(beating(tmp_path, "import sys, time; time.sleep(6)\n" + BEATS))
    service.pid("engine")
    until(lambda: beating(tmp_path).pulse.ailments() == [])  # type: ignore[union-attr]
    service.supervisor.stop()
    assert not any("hung" in line for line in service.end())


CHILD = """
import pathlib, signal, sys, time
from stream_engine.cli.supervisor import until_parent_ends
def stop(*_):
    pathlib.Path(sys.argv[1]).touch()
    sys.exit()
signal.signal(signal.SIGTERM, stop)
until_parent_ends()
print("up", flush=True)
time.sleep(600)
"""
PARENT = """
import sys
from stream_engine.cli.supervisor import ChildSpec, Supervisor
child = ChildSpec("child", (sys.executable, "-c", *sys.argv[1:]))
Supervisor([child], lambda line: print(line, flush=True)).run()
"""


def test_children_stop_cleanly_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    stopped_cleanly = tmp_path / "clean"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, str(stopped_cleanly)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().rpartition(" ")[2])
        assert parent.stdout.readline() == "up\n"
        parent.kill()
    until(lambda: not alive(pid))
    assert stopped_cleanly.exists()
