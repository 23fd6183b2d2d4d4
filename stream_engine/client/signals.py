"""Signals that end a command: a flag to look at, or an exit that unwinds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

TERMINATED = 143


@contextmanager
def stop_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP set ``stop``; what was there before is put back at the end."""

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_on_terminate() -> None:
    """Make SIGTERM unwind the command as Ctrl-C does, so that what it started is cleaned up."""

    def handle(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, handle)
