"""Standing queries come and go: what that changes for the sessions they cover."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from stream_engine.answering.evaluations import StandingEvaluation
from stream_engine.answering.promotion import PromotedQuestions
from stream_engine.messages import StandingPut, StandingQuery, StandingShown
from stream_engine.session.session import Session, SessionState
from stream_engine.standing.covering import WILD, covers
from stream_engine.standing.registered_queries import RegisteredQueries
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Lane, Scheduler
from stream_engine.state.session_table import SessionTable

SLICE = 64
"""Sessions that a pattern is held against between two steps: some 0.3 ms. What more there are waits for later
steps, so that a pattern over a whole market delays nobody."""


@dataclass(slots=True)
class _Round:
    """A pattern on its way through the sessions that were there when it came."""

    query: StandingQuery
    left: Iterator[str]
    count: int


@dataclass(slots=True)
class _Leaving:
    """A query that is gone, and the sessions that have still to give back what they have of it."""

    query: StandingQuery
    sessions: set[str]


class Registration:
    """Registers standing queries, and has them evaluated. ``looked`` counts the sessions that were looked at for
    that so far."""

    def __init__(
        self,
        sessions: SessionTable,
        standing: RegisteredQueries,
        scheduler: Scheduler,
        publication: Publication,
        promoted: PromotedQuestions,
        evaluations: StandingEvaluation,
    ) -> None:
        self._sessions = sessions
        self._standing = standing
        self._scheduler = scheduler
        self._publication = publication
        self._promoted = promoted
        self._evaluations = evaluations
        self._rounds: deque[_Round] = deque()
        self._leaving: deque[_Leaving] = deque()
        self.looked = 0

    @property
    def waiting(self) -> int:
        """Sessions that patterns have still to be held against, and slots of deleted queries to be given back."""
        return sum(round_.count for round_ in self._rounds) + sum(len(gone.sessions) for gone in self._leaving)

    def left(self, query_id: str) -> int:
        """Sessions that were there when the query came, and that it was not held against yet."""
        return sum(round_.count for round_ in self._rounds if round_.query.id == query_id)

    def shown(self, query: StandingQuery) -> StandingShown:
        """The query and how far it is."""
        evaluated, due = self._standing.progress(query.id)
        return StandingShown(
            id=query.id,
            session=query.session,
            question=query.question,
            on=query.on,
            class_=query.class_,
            sessions_evaluated=evaluated,
            sessions_waiting=due + self.left(query.id),
        )

    def is_leaving(self, session: str, question: str) -> bool:
        """Whether nobody asks the question any more, and its slot is given back soon."""
        return any(gone.query.question == question and session in gone.sessions for gone in self._leaving)

    def register(self, request: StandingPut, question: str, class_name: str) -> StandingQuery:
        """Register a query that asks ``question`` of a class; sessions it covers are evaluated next, at their
        present version."""
        previous = self._standing.get(request.id) if request.id else None
        if previous is not None and (previous.session, previous.question) != (request.pattern, question):
            self.unregister(previous.id)
        query = self._standing.put(request, class_name)
        if query == previous:
            return query  # a registry says all of them again, each time that it begins
        if WILD in query.session:
            self._rounds.append(_Round(query, self._sessions.names(), len(self._sessions)))
            self.go_on()
        elif (session := self._sessions.get(query.session)) is not None:
            self._begin(query, session)
        return query

    def unregister(self, query_id: str) -> bool:
        """False where there is no such query."""
        query = self._standing.get(query_id)
        if query is None:
            return False
        self._leaving.append(_Leaving(query, self._standing.delete(query_id)))
        self.go_on()
        return True

    def go_on(self) -> bool:
        """The next slice of what waits; False where nothing did."""
        room = SLICE
        while room and self._leaving:
            gone = self._leaving[0]
            if not gone.sessions:
                self._leaving.popleft()
                continue
            self._leave(gone.sessions.pop(), gone.query)
            room -= 1
        while room and self._rounds:
            first = self._rounds[0]
            name = next(first.left, None)
            if name is None or self._standing.get(first.query.id) != first.query:
                self._rounds.popleft()
                continue
            room -= 1
            if (session := self._sessions.get(name)) is not None:
                first.count = max(0, first.count - 1)
                self._begin(first.query, session)
        return room < SLICE

    def _begin(self, query: StandingQuery, session: Session) -> None:
        self.looked += 1
        if not covers(query.session, session.id):
            return
        self._promoted.registered(session.id)
        if self._standing.answered(session.id, query.id):
            return
        if query.question in session.ready:
            self._evaluations.evaluate(query, session)  # decoded for another query of the same question
            return
        self._standing.due(session.id, query.id)
        if session.current or session.state is SessionState.EVICTED:
            self._scheduler.add(Lane.STANDING, session.id)

    def _leave(self, name: str, query: StandingQuery) -> None:
        self.looked += 1
        self._standing.unlink(name, query.id)
        question = query.question
        session = self._sessions.get(name)
        if session is not None and question not in self._standing.keys(name):
            session.forget(question)
            self._publication.removed(session, question)
