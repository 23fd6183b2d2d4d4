"""Starts the processes of the service, starts again what dies or hangs, and stops them in order.

Children live no longer than the supervisor, even when that is killed: each watches its standard input, a pipe
whose other end only the supervisor holds, and stops when the kernel closes it (``until_parent_ends``).
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from stream_engine.util.pulse import Awake, PulseWatch

ORPHAN_GRACE_S = 10.0
"""How long a child whose supervisor died may take for a clean stop."""
READY_POLL_S = 0.3
LOOK_EVERY_S = 1.0
"""Between two looks at the signs of life."""
ASLEEP_S = 5.0


class ChildState(Enum):
    """RUNNING -> BACKING_OFF -> RUNNING ...; both -> STOPPED, the last state."""

    STOPPED = "stopped"
    RUNNING = "running"
    BACKING_OFF = "backing off"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running. ``final`` are exit statuses after which another start cannot help; ``pulse`` says
    whether it is hung."""

    name: str
    command: tuple[str, ...]
    final: frozenset[int] = frozenset()
    pulse: PulseWatch | None = None


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Start again after ``first_delay_s``, twice as long each further time up to ``longest_delay_s``; give up at
    the ``limit``-th end within ``window_s``. Times in seconds."""

    first_delay_s: float = 0.5
    longest_delay_s: float = 10.0
    limit: int = 6
    window_s: float = 120.0


@dataclass(slots=True)
class _Child:
    spec: ChildSpec
    state: ChildState = ChildState.STOPPED
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float = 0.0
    ends: deque[float] = field(default_factory=deque)


class _Stop(Enum):
    STOP = "stop"


_Message = _Stop | subprocess.Popen[bytes] | int
"""Stop; a process that ended; the number of the readiness watch that saw everything ready."""


class Supervisor:
    """Keeps ``children`` running, started in the given order and stopped in the reverse one.

    ``say`` gets one line for each event. ``is_ready`` is asked, on a thread of its own, after every start until it
    is true; then ``say`` gets ``ready_line``.
    """

    def __init__(
        self,
        children: Sequence[ChildSpec],
        say: Callable[[str], None],
        policy: RestartPolicy = RestartPolicy(),
        stop_timeout_s: float = 15.0,
        is_ready: Callable[[], bool] | None = None,
        ready_line: str = "ready",
    ) -> None:
        self._children = [_Child(spec) for spec in children]
        self._say = say
        self._policy = policy
        self._stop_timeout_s = stop_timeout_s
        self._is_ready = is_ready
        self._ready_line = ready_line
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._watch = 0
        self._next_look = time.monotonic()
        self._awake = Awake(LOOK_EVERY_S + ASLEEP_S)

    def stop(self) -> None:
        """Ask ``run`` to end. Safe in a signal handler and from any thread."""
        self._messages.put(_Stop.STOP)

    def run(self) -> int:
        """Until ``stop`` (returns 0), or until a child cannot be kept running (returns 1)."""
        try:
            for child in self._children:
                self._start(child)
            self._watch_readiness()
            while True:
                message = self._next()
                if message is _Stop.STOP:
                    self._say("stopping")
                    return 0
                if isinstance(message, subprocess.Popen) and not self._on_end(message):
                    return 1
                if isinstance(message, int) and message == self._watch:
                    self._say(self._ready_line)
                self._restart_due()
                self._look()
        finally:
            self._ended.set()
            for child in reversed(self._children):
                self._stop_child(child)

    def _next(self) -> _Message | None:
        """The next message; None when a restart or a look at the signs of life is due before one comes."""
        due = [child.restart_at for child in self._children if child.state is ChildState.BACKING_OFF]
        try:
            return self._messages.get(timeout=max(0.0, min([*due, self._next_look]) - time.monotonic()))
        except queue.Empty:
            return None

    def _start(self, child: _Child) -> None:
        # A session of its own: Ctrl-C in the terminal reaches the supervisor alone, which stops in order.
        child.started_at = time.monotonic()
        process = subprocess.Popen(child.spec.command, stdin=subprocess.PIPE, start_new_session=True)
        child.process, child.state = process, ChildState.RUNNING
        threading.Thread(target=self._wait_for, args=(process,), daemon=True).start()
        self._say(f"{child.spec.name}: started, pid {process.pid}")

    def _wait_for(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._messages.put(process)

    def _on_end(self, process: subprocess.Popen[bytes]) -> bool:
        """Plan the restart of a child that ended unasked; False when it is to be given up."""
        child = next(candidate for candidate in self._children if candidate.process is process)
        status = process.returncode
        _close_pipe(process)
        now = time.monotonic()
        child.ends.append(now)
        while child.ends[0] < now - self._policy.window_s:
            child.ends.popleft()
        ended = f"{child.spec.name}: ended {_describe(status)}"
        if status in child.spec.final:
            child.state = ChildState.STOPPED
            self._say(f"{ended}: another start cannot help, see its message above")
            return False
        if len(child.ends) >= self._policy.limit:
            child.state = ChildState.STOPPED
            self._say(
                f"{ended}, for the {len(child.ends)}th time within {self._policy.window_s:.0f} s: giving up, "
                "see its messages above"
            )
            return False
        delay = min(self._policy.first_delay_s * 2 ** (len(child.ends) - 1), self._policy.longest_delay_s)
        child.state, child.restart_at = ChildState.BACKING_OFF, now + delay
        self._say(f"{ended}: starting it again in {delay:.1f} s")
        return True

    def _restart_due(self) -> None:
        now = time.monotonic()
        due = [c for c in self._children if c.state is ChildState.BACKING_OFF and c.restart_at <= now]
        for child in due:
            self._start(child)
        if due:
            self._watch_readiness()

    def _look(self) -> None:
        """Kill what is hung: its end is then like any other. A stopped process takes nothing but SIGKILL."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        awake_since = self._awake.look()
        for child in self._children:
            process, pulse = child.process, child.spec.pulse
            if child.state is not ChildState.RUNNING or process is None or pulse is None:
                continue
            why = pulse.silence(process.pid, child.started_at, awake_since)
            if why is not None and process.returncode is None:
                self._say(f"{child.spec.name}: hung, {why}: killing it")
                _kill_session(process)

    def _watch_readiness(self) -> None:
        self._watch += 1
        if self._is_ready is not None:
            threading.Thread(target=self._until_ready, args=(self._is_ready, self._watch), daemon=True).start()

    def _until_ready(self, is_ready: Callable[[], bool], watch: int) -> None:
        while self._watch == watch and not is_ready():
            if self._ended.wait(READY_POLL_S):
                return
        self._messages.put(watch)

    def _stop_child(self, child: _Child) -> None:
        """SIGTERM, then SIGKILL (to its whole session) for what does not stop in time."""
        process, child.state = child.process, ChildState.STOPPED
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            self._say(f"{child.spec.name}: did not stop within {self._stop_timeout_s:.0f} s: killed")
            _kill_session(process)
            process.wait()
        else:
            self._say(f"{child.spec.name}: stopped")
        _close_pipe(process)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Of a child: it and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _describe(status: int) -> str:
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"


def until_parent_ends() -> None:
    """In a child: stop this process when its standard input closes, which is when its supervisor has ended.

    A clean stop (SIGTERM to itself) first; SIGKILL to all that it started when that takes too long.
    """
    threading.Thread(target=_watch_parent, name="parent-watch", daemon=True).start()


def _watch_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
