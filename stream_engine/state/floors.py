"""Which sessions of a partition hold its floor back, and which have a window to write: found without a look at the
others."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from stream_engine.session.session import Session

SPARE = 64
"""Entries that may be out of date before they are cleared away."""


class Floors:
    """The sessions by their floor, lowest first, and those whose window is due. An entry whose session has another
    floor by now, or is gone, is dropped when it comes to the top. ``looked`` counts entries looked at."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._fed: dict[str, Session] = {}
        self._noted: dict[str, int] = {}
        self._due: dict[str, None] = {}
        self.looked = 0

    def __len__(self) -> int:
        return len(self._heap)

    def note(self, session: Session) -> None:
        """Its floor may have moved, or its window become due."""
        self._fed[session.id] = session
        if session.window_due:
            self._due[session.id] = None
        if session.floor is not None and self._noted.get(session.id) != session.floor:
            self._noted[session.id] = session.floor
            heapq.heappush(self._heap, (session.floor, session.id))
            if len(self._heap) > 2 * len(self._fed) + SPARE:
                self._heap = [(noted.floor, name) for name, noted in self._fed.items() if noted.floor is not None]
                heapq.heapify(self._heap)

    def forget(self, session_id: str) -> None:
        self._fed.pop(session_id, None)
        self._noted.pop(session_id, None)
        self._due.pop(session_id, None)

    def lowest(self) -> Session | None:
        """The session that holds the floor back the furthest; None where none does."""
        while self._heap:
            self.looked += 1
            floor, name = self._heap[0]
            session = self._fed.get(name)
            if session is not None and session.floor == floor:
                return session
            heapq.heappop(self._heap)
        return None

    def due(self, quiet_before: int) -> Iterator[Session]:
        """Sessions whose window is to be written now, one after the other: those that are due, then those that
        hold the floor back to before ``quiet_before``. Whoever takes one writes it."""
        while self._due:
            self.looked += 1
            name = next(iter(self._due))
            del self._due[name]
            session = self._fed[name]
            if session.window_due:
                yield session
        while (lowest := self.lowest()) is not None and lowest.floor is not None and lowest.floor < quiet_before:
            yield lowest
