"""Which worker of the ready board this process is: each needs a number, and its consumed words, of its own."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_WORKERS = 1024


@contextmanager
def claim_worker(board: Path) -> Iterator[int]:
    """The lowest number that no living process on this host has claimed for ``board``, held by a lock on a file
    beside it. The kernel gives it back whatever way the process ends, so a restarted worker takes its place.

    Raises RuntimeError where all are taken.
    """
    board.parent.mkdir(parents=True, exist_ok=True)
    for number in range(MAX_WORKERS):
        descriptor = os.open(board.with_name(f"{board.name}.worker-{number}"), os.O_RDWR | os.O_CREAT, 0o660)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield number
        finally:
            os.close(descriptor)
        return
    raise RuntimeError(f"more than {MAX_WORKERS} API workers on {board}")
