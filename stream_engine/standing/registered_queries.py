"""Standing queries: what is registered, which sessions it concerns, and what was answered last."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from stream_engine.decision.entry import Entry, entry_key, standing_entry
from stream_engine.messages import AnswerChanged, StandingPut, StandingQuery
from stream_engine.model.render.rendering import Builder
from stream_engine.standing.answer_book import AnswerBook, supersedes
from stream_engine.standing.covering import Covering


class RegisteredQueries:
    """Registered queries by id, and per session the entries they amount to.

    Several queries with the same question share one entry: it is decoded once.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._queries: dict[str, StandingQuery] = {}
        self._covering = Covering()
        self._numbers = itertools.count(1)
        self._entries: dict[str, tuple[int, tuple[Entry, ...]]] = {}
        self._answers: dict[str, dict[str, AnswerChanged]] = {}
        self._due: dict[str, set[str]] = {}
        self._asked: dict[str, set[str]] = {}
        self._asked_of: dict[str, set[str]] = {}
        self._told = AnswerBook()

    @property
    def count(self) -> int:
        return len(self._queries)

    @property
    def looked(self) -> int:
        """Queries that were held against a session's id so far."""
        return self._covering.looked

    def put(self, request: StandingPut, class_name: str) -> StandingQuery:
        """Register, or replace the query of that id. Its earlier answers are forgotten when it changed."""
        query_id = request.id or self._next_id()
        query = StandingQuery(
            id=query_id,
            session=request.pattern,
            question=entry_key(request.question),
            on=request.on,
            class_=class_name,
        )
        if self._queries.get(query_id) != query:
            self._forget(query_id)
            self._queries[query_id] = query
            self._covering.add(query)
            self._entries.pop(query.session, None)
        return query

    def get(self, query_id: str) -> StandingQuery | None:
        return self._queries.get(query_id)

    def all(self) -> tuple[StandingQuery, ...]:
        return tuple(self._queries.values())

    def delete(self, query_id: str) -> set[str]:
        """Returns the sessions that the query was evaluated for: who takes one of them ``unlink``s it."""
        asked = self._asked.get(query_id, set())
        self._forget(query_id)
        return asked

    def matching(self, session: str) -> tuple[StandingQuery, ...]:
        """Queries whose session or pattern (``*``, ``EUR*``) covers ``session``."""
        return self._covering.of(session)

    def entries(self, session: str) -> tuple[Entry, ...]:
        """One entry per different question asked of ``session``, in order of registration."""
        at, known = self._entries.get(session, (-1, ()))
        stands = self._covering.pattern_changes
        if at != stands:
            by_question: dict[str, Entry] = {}
            for query in self.matching(session):
                before = by_question.get(query.question)
                by_question[query.question] = standing_entry(
                    self._builder,
                    query.question,
                    query.class_,
                    every_commit=query.on == "commit" or (before is not None and before.every_commit),
                    of_pattern=query.session != session and (before is None or before.of_pattern),
                )
            known = tuple(by_question.values())
            self._entries[session] = stands, known
        return known

    def keys(self, session: str) -> set[str]:
        """What the session's standing queries ask."""
        return {entry.key for entry in self.entries(session)}

    def due(self, session: str, query: str) -> None:
        """The session's present version is to be evaluated, when there is time."""
        self._due.setdefault(query, set()).add(session)

    def progress(self, query: str) -> tuple[int, int]:
        """Sessions that the query has an answer of, and those that are due."""
        return len(self._answers.get(query, {})), len(self._due.get(query, ()))

    def forget_session(self, session: str) -> None:
        self.rest(session)
        for query in self._asked_of.pop(session, ()):
            self._drop(session, query)

    def hand_over(self, session: str) -> None:
        """Its partition is given up, or taken anew: what was told of it here is of an earlier life."""
        for answer in self.answers(session, None):
            self._told.note(answer)
        self.forget_session(session)

    def rest(self, session: str) -> None:
        """It sleeps: what was told of it is kept, and nothing else."""
        self._entries.pop(session, None)
        for query in self.matching(session):
            _unlink(self._due, query.id, session)

    def restore(self, told: Iterable[AnswerChanged]) -> None:
        """What earlier lives of the engine, and other engines, have answered last."""
        self._told.replace(told)

    def evaluated(self, answer: AnswerChanged, on: str) -> AnswerChanged | None:
        """Record an evaluation; returns the event to emit, or None where nothing changed and the query asked
        for changes only, or where this version was evaluated before (in a replay it is once more)."""
        last = self._last(answer.session, answer.query)
        _unlink(self._due, answer.query, answer.session)
        self._asked_of.setdefault(answer.session, set()).add(answer.query)
        self._asked.setdefault(answer.query, set()).add(answer.session)
        if last is not None and not supersedes(answer, last):
            if last.session_version == answer.session_version:
                self._answers.setdefault(answer.query, {})[answer.session] = last
            return None
        previous = last if last is not None and last.question == answer.question else None
        event = AnswerChanged(
            session=answer.session,
            query=answer.query,
            question=answer.question,
            answer=answer.answer,
            previous=previous.answer if previous else None,
            initial=previous is None,
            class_=answer.class_,
            gap=answer.gap,
            confidence=answer.confidence,
            session_version=answer.session_version,
            topic=answer.topic,
            partition=answer.partition,
            offset=answer.offset,
            event_time=answer.event_time,
        )
        self._answers.setdefault(answer.query, {})[answer.session] = event
        changed = previous is None or previous.answer != answer.answer
        return event if changed or on == "commit" else None

    def _last(self, session: str, query: str) -> AnswerChanged | None:
        here, told = self._answers.get(query, {}).get(session), self._told.get(session, query)
        if here is None or told is None:
            return here or told
        same_source = (told.topic, told.partition) == (here.topic, here.partition)
        return told if same_source and told.session_version > here.session_version else here

    def told(self, query: str) -> Iterator[AnswerChanged]:
        """What was answered last to one query, here or in earlier lives of the engine: as it stands now, whatever
        becomes of the query while that is looked through."""
        here = self._answers.get(query, {})
        before = self._told.of_query(query)
        return itertools.chain(tuple(here.values()), (told for told in before if told.session not in here))

    def told_queries(self) -> tuple[str, ...]:
        """Ids of queries that were answered, here or in earlier lives of the engine, and of some that are gone."""
        return tuple({**dict.fromkeys(self._told.queries()), **dict.fromkeys(self._answers)})

    def answered(self, session: str, query: str) -> bool:
        """Whether the query was evaluated for the session at least once."""
        return session in self._answers.get(query, {})

    def unlink(self, session: str, query: str) -> None:
        """The session's part of a query that is gone."""
        if session not in self._asked.get(query, ()):  # else one of that id has come since
            _unlink(self._asked_of, session, query)

    def answers(self, session: str | None, query: str | None) -> tuple[AnswerChanged, ...]:
        """The newest evaluation of each query and session, optionally of one."""
        queries: Iterable[str] = self._answers if query is None else (query,)
        if session is not None:
            asked = self._asked_of.get(session, set())
            queries = asked if query is None else asked & {query}
        found = (self._answers.get(name, {}) for name in queries)
        if session is not None:
            return tuple(answers[session] for answers in found if session in answers)
        return tuple(answer for answers in found for answer in answers.values())

    def _next_id(self) -> str:
        return next(name for n in self._numbers if (name := f"sq-{n}") not in self._queries)

    def _forget(self, query_id: str) -> None:
        query = self._queries.pop(query_id, None)
        if query is not None:
            self._covering.remove(query)
            self._entries.pop(query.session, None)
        self._told.forget_query(query_id)
        self._due.pop(query_id, None)
        self._asked.pop(query_id, None)
        self._answers.pop(query_id, None)

    def _drop(self, session: str, query: str) -> None:
        """The evaluation of one query for one session is forgotten, on both sides of the index."""
        _unlink(self._asked, query, session)
        _unlink(self._asked_of, session, query)
        answers = self._answers.get(query, {})
        answers.pop(session, None)
        if not answers:
            self._answers.pop(query, None)


def _unlink(index: dict[str, set[str]], name: str, other: str) -> None:
    linked = index.get(name, set())
    linked.discard(other)
    if not linked:
        index.pop(name, None)
