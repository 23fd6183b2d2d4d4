"""What could not be read and was passed over: counted by reason, and told in the log now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

TELL_EVERY_S = 60.0
SHOWN = 300
"""Characters of a detail that the log repeats: it may hold what a stranger has sent."""

MESSAGE_REASONS = {
    "frames": "of other than three frames",
    "unreadable": "that could not be read, or broke a bound of their type",
    "failed": "that a fault of the engine has cost",
    "reply_too_large": "whose reply was larger than a frame may be",
    "peer_does_not_read": "that a peer has waiting beyond its bound, and loses",
    "unknown_topic": "of a topic that is none of this engine's",
    "unknown_partition": "of a partition that the topic does not have",
    "generation_ahead": "of a generation of a time to come",
    "no_standing_topic": "of a registry, where the engine keeps the standing queries itself",
    "too_many_consumers": "of one consumer more than may be known",
}
"""Why the engine does not take a message."""


class Skipped:
    """Several threads may use one. A reason is told at its first case, then at most once a minute with how many
    there were meanwhile: whoever sends rubbish must not fill the log with it."""

    def __init__(
        self,
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """``count`` is told of each one's reason as well."""
        self._log = log
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._told: dict[str, tuple[float, int]] = {}

    def note(self, reason: str, detail: str) -> None:
        """One more. ``reason`` is part of a metric's name: lower case with underscores."""
        now = self._clock()
        self._count(reason)
        with self._lock:
            self._counts[reason] += 1
            count = self._counts[reason]
            at, told = self._told.get(reason, (now - TELL_EVERY_S, 0))
            if now - at < TELL_EVERY_S:
                return
            self._told[reason] = (now, count)
        shown = detail if len(detail) <= SHOWN else f"{detail[:SHOWN]}..."
        more = f" (and {count - told - 1} others since it was last told)" if count - told > 1 else ""
        self._log.warning("skipped: %s: %s%s", reason.replace("_", " "), shown, more)

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)
