"""The broker's process: how it is launched, remembered on disk, recognised again and ended."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from stream_engine.util.atomic_file import write_atomically

from .errors import LocalKafkaError

# The wall clock may be stepped between two readings of a process's start time, which is derived from it.
_START_TIME_TOLERANCE_S = 10.0


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What the pid file holds: enough to tell the broker from a later process with the same pid."""

    pid: int
    started_at: float
    """seconds since the epoch"""
    port: int
    marker: str
    """an argument of the broker's command line that names its data folder"""

    def process(self) -> psutil.Process | None:
        """The live broker, or None: gone, a zombie, or another program that got its pid."""
        try:
            process = psutil.Process(self.pid)
            same_start = abs(process.create_time() - self.started_at) < _START_TIME_TOLERANCE_S
            alive = process.status() != psutil.STATUS_ZOMBIE
            return process if alive and same_start and self.marker in process.cmdline() else None
        except psutil.NoSuchProcess:
            return None
        except psutil.AccessDenied:
            return None  # another user's process: not one that this user started


def launch(command: list[str], output: Path, port: int, marker: str) -> ProcessRecord:
    """Starts a background process that outlives this one and returns its record.

    A shell starts it and leaves, so that the init process reaps it and no handle stays open here.

    Args:
        command: program and arguments; `marker` must be one of them.
        output: file that takes its stdout and stderr.
    """
    with output.open("wb") as sink:
        shell = subprocess.run(
            ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
            check=True,
            text=True,
        )
    pid = int(shell.stdout)
    try:
        started_at = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:  # it failed at once; the caller sees no live process and shows its output
        started_at = time.time()
    return ProcessRecord(pid, started_at, port, marker)


def write_record(path: Path, record: ProcessRecord) -> None:
    """Writes the pid file; a reader never sees half of it."""
    fields = {"pid": record.pid, "started_at": record.started_at, "port": record.port, "marker": record.marker}
    write_atomically(path, json.dumps(fields).encode())


def read_record(path: Path) -> ProcessRecord | None:
    """The record in a pid file; None when there is no file.

    Raises:
        LocalKafkaError: the file is not one that this program wrote.
    """
    try:
        return ProcessRecord(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise LocalKafkaError(
            f"{path} is damaged: see whether a broker still runs, then delete the file."
        ) from error


def terminate(process: psutil.Process, timeout: float) -> bool:
    """SIGTERM, then SIGKILL after `timeout` seconds; True when SIGTERM was enough."""
    try:
        process.terminate()
        if _gone(process, timeout):
            return True
    except psutil.NoSuchProcess:
        return True
    kill(process)
    return False


def kill(process: psutil.Process) -> None:
    """SIGKILL; returns when the process is gone."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
    if not _gone(process, timeout=10.0):
        raise LocalKafkaError(f"Process {process.pid} does not end on SIGKILL (a hung disk?).")


def _gone(process: psutil.Process, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            if not process.is_running():  # its pid may belong to another program already
                return True
            # An unreaped child of a container's init stays a zombie for good: that counts as gone. A JVM whose
            # first thread ended is a zombie too, and holds its port until its other threads have ended.
            if process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False
