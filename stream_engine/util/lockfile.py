"""A file that one process at a time holds: the kernel gives it back whatever way the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_engine.util.ownership import require_ours


class Held(RuntimeError):
    """Another process holds the file."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold ``path`` for the length of the block; made where it is absent, gone after a clean end. Raises Held at
    once, NotOurs where another user has made it, and OSError."""
    descriptor = _lock(path)
    try:
        yield
    finally:
        # While it is locked: whoever opens it from now on makes it anew.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o660)
        try:
            require_ours(path, os.fstat(descriptor))
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise Held(str(path)) from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder has removed it meanwhile


def _is(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
