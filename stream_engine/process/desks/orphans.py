"""Answers in the answers topic that no query asks for any more: looked for slice by slice, so that a query over a
whole market goes without a moment in which nothing else is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from stream_engine.messages import AnswerChanged, AnswerGone
from stream_engine.standing.covering import covers
from stream_engine.standing.registered_queries import RegisteredQueries

SLICE = 256
"""Answers that are looked at between two steps: some 0.5 ms."""


class Orphans:
    """``looked`` counts the answers that were looked at so far."""

    def __init__(self, standing: RegisteredQueries) -> None:
        self._standing = standing
        self._suspected: deque[Iterator[AnswerChanged]] = deque()
        self._all: Iterator[AnswerChanged] = iter(())
        self.looked = 0

    def suspect(self, query: str) -> None:
        """The query is about to be changed or to go: what was told of it so far may be an orphan then."""
        self._suspected.append(self._standing.told(query))

    def suspect_all(self) -> None:
        """There are more that may be withdrawn from here. A round on its way begins anew: one serves for all."""
        queries = self._standing.told_queries()
        self._all = (answer for query in queries for answer in self._standing.told(query))

    def take(self) -> Iterator[AnswerGone]:
        """The orphans of the next slice."""
        room = SLICE
        while room and self._suspected:
            answers = tuple(islice(self._suspected[0], room))
            room -= len(answers)
            if room:
                self._suspected.popleft()
            yield from self._gone(answers)
        yield from self._gone(tuple(islice(self._all, room)))

    def _gone(self, answers: tuple[AnswerChanged, ...]) -> Iterator[AnswerGone]:
        self.looked += len(answers)
        for answer in answers:
            query = self._standing.get(answer.query)
            if query is not None and covers(query.session, answer.session):
                continue
            if answer.topic is not None and answer.partition is not None and answer.offset is not None:
                yield AnswerGone(
                    session=answer.session,
                    query=answer.query,
                    topic=answer.topic,
                    partition=answer.partition,
                    offset=answer.offset,
                )
