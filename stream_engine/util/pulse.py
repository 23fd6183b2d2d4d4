"""A process's sign of life, written by the loop that does its work, and who is silent.

A process that lives is not yet one that works: it may be stopped (SIGSTOP), wait for ever or spin. Its loop writes
the time into a small file about once a second, in place: that needs no room on a disk that has become full. Times
are of the monotonic clock, which all processes of a machine share, and which neither a clock that is set nor a
machine that sleeps moves on.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stream_engine.util.ownership import private_folder, require_ours

log = logging.getLogger(__name__)

EVERY_S = 1.0
_WIDTH = 20
_SUFFIX = ".life"


class Pulse:
    """The sign of life of this process, which is a ``part`` of the service. The file is held by a lock while the
    process lives, and gone after a clean end."""

    def __init__(self, folder: Path, part: str) -> None:
        """The folder is made where it is absent; what killed processes have left is removed. Raises NotOurs and
        OSError."""
        private_folder(folder)
        sweep(folder, part)
        self._path = _path(folder, part, os.getpid())
        self._descriptor = _hold(self._path)
        self._next = 0.0
        self._failed = False

    def beat(self) -> None:
        """The loop turns. Costs next to nothing when called often."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_S
        try:
            if not os.fstat(self._descriptor).st_nlink:  # something has swept the folder
                descriptor = _hold(self._path)
                os.close(self._descriptor)
                self._descriptor = descriptor
            _write(self._descriptor, now)
        except OSError as error:
            if not self._failed:
                log.warning("the sign of life cannot be written, going on without: %s: %s", self._path, error)
            self._failed = True
        else:
            self._failed = False

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def sweep(folder: Path, part: str) -> None:
    """Remove what processes that have ended left behind."""
    for _, path in _files(folder, part):
        with _unless_held(path) as abandoned:
            if abandoned:
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class PulseWatch:
    """Judges the processes that are one ``part`` of the service. ``hung_after_s`` is for one that has begun its
    work, ``start_s`` for one that has not; both in seconds."""

    folder: Path
    part: str
    hung_after_s: float
    start_s: float

    def silence(self, pid: int, started: float, awake_since: float) -> str | None:
        """Why a process that started at ``started`` is taken for hung; None while it is not. ``awake_since`` is
        ``Awake.look`` of whoever asks. Times of the monotonic clock."""
        at = _last_beat(_path(self.folder, self.part, pid))
        now = time.monotonic()
        if at is None or at < started:
            silent, limit = now - max(started, awake_since), self.start_s
            words = f"it has not begun its work within {silent:.0f} s"
        else:
            silent, limit = now - max(at, awake_since), self.hung_after_s
            words = f"no sign of life for {silent:.0f} s"
        return words if silent > limit else None

    def ailments(self) -> list[str]:
        """What is wrong with the living processes of this part, in words: none is there, or one is silent."""
        found, living = [], 0
        for pid, path in _files(self.folder, self.part):
            with _unless_held(path) as abandoned:
                if abandoned is not False:
                    continue
            living += 1
            at = _last_beat(path)
            if at is None:
                found.append(f"{self.part}, process {pid}: it has not begun its work yet")
            elif (silent := time.monotonic() - at) > self.hung_after_s:
                found.append(f"{self.part}, process {pid}: no sign of life for {silent:.0f} s")
        return found if living else [f"no {self.part} runs that has its sign of life in {self.folder}"]


class Awake:
    """Since when whoever judges others has run itself, undisturbed: where a whole machine or container was
    stopped, nobody is hung. It looks at least every ``longest_gap_s``, or has slept."""

    def __init__(self, longest_gap_s: float) -> None:
        self._longest_gap_s = longest_gap_s
        self._since = self._looked = time.monotonic()

    def look(self) -> float:
        """To be called with each look at the others: since when, of the monotonic clock."""
        now = time.monotonic()
        if now - self._looked > self._longest_gap_s:
            self._since = now
        self._looked = now
        return self._since


def _path(folder: Path, part: str, pid: int) -> Path:
    return folder / f"{part}-{pid}{_SUFFIX}"


def _files(folder: Path, part: str) -> Iterator[tuple[int, Path]]:
    for path in sorted(folder.glob(f"{part}-*{_SUFFIX}")):
        number = path.name.removeprefix(f"{part}-").removesuffix(_SUFFIX)
        if number.isdecimal():
            yield int(number), path


def _open(path: Path, flags: int) -> int:
    """Raises NotOurs and OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        require_ours(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _hold(path: Path) -> int:
    """The file, without a beat yet, locked by this process. Its room is taken now. Raises NotOurs and OSError."""
    while True:
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # a reader that looks whether it is held is soon done
            _write(descriptor, 0.0)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # what an earlier process of this id had left, and another has just removed


def _write(descriptor: int, at: float) -> None:
    os.pwrite(descriptor, f"{at:{_WIDTH - 1}.6f}\n".encode(), 0)


@contextmanager
def _unless_held(path: Path) -> Iterator[bool | None]:
    """True where the process that wrote it has ended; nobody takes it for the length of the block. None where it
    cannot be told: it is gone, or is not ours."""
    try:
        descriptor = _open(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _last_beat(path: Path) -> float | None:
    """None where there has been none yet."""
    try:
        descriptor = _open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        at = float(os.pread(descriptor, _WIDTH, 0))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return at if 0 < at <= time.monotonic() else None
