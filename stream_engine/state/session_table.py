"""The sessions of an engine, by id. They are opened and removed here, and nowhere else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from sortedcontainers import SortedList

from stream_engine.model.render.rendering import Builder
from stream_engine.session.session import Session, SessionState, Source

SPARE = 64
"""Names of sessions that are gone, that are kept before they are cleared away."""


class SessionTable(Mapping[str, Session]):
    """All sessions speak to the same model, by one ``builder``. The order of their ids is kept, so that a page of
    them costs the same wherever it begins."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._sessions: dict[str, Session] = {}
        self._order: list[str] = []
        self._by_id = SortedList()

    def open(self, session_id: str, source: Source | None = None, gap_end: int | None = None) -> Session:
        """A new session; without a ``source`` it is pushed by a client. Its log begins at ``gap_end`` where
        records before that had aged out."""
        return self._enter(Session(session_id, self.builder, source, gap_end=gap_end))

    def wake(self, session_id: str, source: Source, gap_end: int | None) -> Session:
        """A session of which only a row was left; its window is to follow."""
        return self._enter(Session(session_id, self.builder, source, SessionState.DORMANT, gap_end=gap_end))

    def _enter(self, session: Session) -> Session:
        if session.id not in self._sessions:
            self._by_id.add(session.id)
        self._sessions[session.id] = session
        self._order.append(session.id)
        if len(self._order) > 2 * len(self._sessions) + SPARE:
            self._order = list(self._sessions)
        return session

    def names(self) -> Iterator[str]:
        """The sessions that are here now, and some that are not any more. Nothing is copied, and whoever goes
        through them may do so bit by bit: what comes and goes meanwhile does not disturb it."""
        return itertools.islice(self._order, len(self._order))

    def remove(self, session: Session) -> None:
        del self._sessions[session.id]
        self._by_id.remove(session.id)

    def behind(self, last: str, beginning: str = "") -> Iterator[str]:
        """Ids in order, behind ``last``, of those with that ``beginning``. None may come or go meanwhile."""
        inclusive = last < beginning
        for name in self._by_id.irange(beginning if inclusive else last, inclusive=(inclusive, True)):
            if not name.startswith(beginning):
                return
            yield name

    def __getitem__(self, session_id: str) -> Session:
        return self._sessions[session_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)
