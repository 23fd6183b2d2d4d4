"""Standing queries: what is registered, which sessions it concerns, and what was answered last."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from fnmatch import fnmatchcase

from stream_engine.decision.entry import Entry, entry_key, standing_entry
from stream_engine.messages import AnswerChanged, StandingPut, StandingQuery
from stream_engine.model.render.rendering import Builder
from stream_engine.standing.answer_book import AnswerBook, supersedes


class RegisteredQueries:
    """Registered queries by id, and per session the entries they amount to.

    Several queries with the same question share one entry: it is decoded once.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._queries: dict[str, StandingQuery] = {}
        self._numbers = itertools.count(1)
        self._entries: dict[str, tuple[Entry, ...]] = {}
        self._answers: dict[tuple[str, str], AnswerChanged] = {}
        self._told = AnswerBook()

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
        return query

    def get(self, query_id: str) -> StandingQuery | None:
        return self._queries.get(query_id)

    def all(self) -> tuple[StandingQuery, ...]:
        return tuple(self._queries.values())

    def delete(self, query_id: str) -> bool:
        found = query_id in self._queries
        self._forget(query_id)
        return found

    def matching(self, session: str) -> tuple[StandingQuery, ...]:
        """Queries whose session or pattern (``*``, ``EUR*``) covers ``session``."""
        return tuple(query for query in self._queries.values() if covers(query.session, session))

    def entries(self, session: str) -> tuple[Entry, ...]:
        """One entry per different question asked of ``session``, in order of registration."""
        known = self._entries.get(session)
        if known is None:
            by_question: dict[str, Entry] = {}
            for query in self.matching(session):
                every = query.on == "commit" or (
                    query.question in by_question and by_question[query.question].every_commit
                )
                by_question[query.question] = standing_entry(self._builder, query.question, query.class_, every)
            known = self._entries[session] = tuple(by_question.values())
        return known

    def keys(self, session: str) -> set[str]:
        """What the session's standing queries ask."""
        return {entry.key for entry in self.entries(session)}

    def forget_session(self, session: str) -> None:
        self._entries.pop(session, None)
        for key in [key for key in self._answers if key[0] == session]:
            del self._answers[key]

    def restore(self, told: Iterable[AnswerChanged]) -> None:
        """What earlier lives of the engine, and other engines, have answered last."""
        self._told.replace(told)

    def evaluated(self, answer: AnswerChanged, on: str) -> AnswerChanged | None:
        """Record an evaluation; returns the event to emit, or None where nothing changed and the query asked
        for changes only, or where this version was evaluated before (in a replay it is once more)."""
        key = (answer.session, answer.query)
        last = self._last(*key)
        if last is not None and not supersedes(answer, last):
            if last.session_version == answer.session_version:
                self._answers[key] = last
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
        self._answers[key] = event
        changed = previous is None or previous.answer != answer.answer
        return event if changed or on == "commit" else None

    def _last(self, session: str, query: str) -> AnswerChanged | None:
        here, told = self._answers.get((session, query)), self._told.get(session, query)
        if here is None or told is None:
            return here or told
        same_source = (told.topic, told.partition) == (here.topic, here.partition)
        return told if same_source and told.session_version > here.session_version else here

    def told(self, query: str | None = None) -> tuple[AnswerChanged, ...]:
        """What was answered last, here or in earlier lives of the engine; optionally of one query."""
        known = {(answer.session, answer.query): answer for answer in (*self._told.all(), *self._answers.values())}
        return tuple(answer for key, answer in known.items() if query in (None, key[1]))

    def answered(self, session: str, query: str) -> bool:
        """Whether the query was evaluated for the session at least once."""
        return (session, query) in self._answers

    def answers(self, session: str | None, query: str | None) -> tuple[AnswerChanged, ...]:
        """The newest evaluation of each query and session, optionally of one."""
        return tuple(
            answer
            for answer in self._answers.values()
            if session in (None, answer.session) and query in (None, answer.query)
        )

    def _next_id(self) -> str:
        return next(name for n in self._numbers if (name := f"sq-{n}") not in self._queries)

    def _forget(self, query_id: str) -> None:
        self._queries.pop(query_id, None)
        self._entries.clear()
        self._told.forget_query(query_id)
        for key in [key for key in self._answers if key[1] == query_id]:
            del self._answers[key]


def covers(pattern: str, session: str) -> bool:
    """Whether a session id or pattern covers ``session``. Only ``*`` is special: ids may hold ``[`` and ``?``."""
    if "*" not in pattern:
        return pattern == session
    escaped = pattern.replace("[", "[[]").replace("?", "[?]")
    return fnmatchcase(session, escaped)
