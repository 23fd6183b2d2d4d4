"""Which worker of the ready board this process is: each needs a number, and its consumed words, of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stream_engine.util.lockfile import Held, held

MAX_WORKERS = 1024


@contextmanager
def claim_worker(board: Path) -> Iterator[int]:
    """The lowest number that no living process on this host has claimed for ``board``, held by a lock on a file
    beside it. The kernel gives it back whatever way the process ends, so a restarted worker takes its place.

    Raises RuntimeError where all are taken.
    """
    board.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for number in range(MAX_WORKERS):
            try:
                stack.enter_context(held(board.with_name(f"{board.name}.worker-{number}")))
            except Held:
                continue
            yield number
            return
    raise RuntimeError(f"more than {MAX_WORKERS} API workers on {board}")
