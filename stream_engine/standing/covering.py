"""Which standing queries cover a session: found by its id, without a look at the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fnmatch import fnmatchcase

from stream_engine.messages import StandingQuery

WILD = "*"


class Covering:
    """Queries of one session by its id, patterns by what they have before their first ``*``: a session is covered
    by patterns below the beginnings of its own id only."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._since: dict[str, int] = {}
        self._below: dict[str, dict[str, StandingQuery]] = {}
        self.pattern_changes = 0
        """How often a pattern came or went: each may have changed what covers any session."""
        self.looked = 0
        """Queries that were held against a session's id so far."""

    def add(self, query: StandingQuery) -> None:
        self._since[query.id] = next(self._numbers)
        self._below.setdefault(_beginning(query.session), {})[query.id] = query
        self.pattern_changes += WILD in query.session

    def remove(self, query: StandingQuery) -> None:
        del self._since[query.id]
        below = self._below[_beginning(query.session)]
        del below[query.id]
        if not below:
            del self._below[_beginning(query.session)]
        self.pattern_changes += WILD in query.session

    def of(self, session: str) -> tuple[StandingQuery, ...]:
        """The queries that cover ``session``, in order of registration."""
        found = [query for query in self._candidates(session) if covers(query.session, session)]
        return tuple(sorted(found, key=lambda query: self._since[query.id]))

    def _candidates(self, session: str) -> Iterator[StandingQuery]:
        beginnings = (f"{session[:end]}{WILD}" for end in range(len(session) + 1))
        for beginning in dict.fromkeys((session, *beginnings)):  # an id may hold a ``*`` itself
            for query in self._below.get(beginning, {}).values():
                self.looked += 1
                yield query


def _beginning(pattern: str) -> str:
    """The pattern up to its first ``*``, and that; an id as it is."""
    beginning, wild, _ = pattern.partition(WILD)
    return beginning + wild


def covers(pattern: str, session: str) -> bool:
    """Whether a session id or pattern covers ``session``. Only ``*`` is special: ids may hold ``[`` and ``?``."""
    if WILD not in pattern:
        return pattern == session
    escaped = pattern.replace("[", "[[]").replace("?", "[?]")
    return fnmatchcase(session, escaped)
