"""Several things closed one after another, also where one of them fails."""

from __future__ import annotations

import logging
from collections.abc import Callable


def close_all(log: logging.Logger, *closers: Callable[[], None]) -> None:
    """Call each; ``log`` tells of those that raise, and the others are called all the same."""
    for close in closers:
        try:
            close()
        except Exception as error:  # whatever it is: this process ends, and the others hold locks and sockets
            log.warning("not closed cleanly: %s: %s", type(error).__name__, error)
