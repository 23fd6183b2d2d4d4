"""Standing queries come and go: what that changes for the sessions they cover."""

from __future__ import annotations

from collections.abc import Mapping

from stream_engine.answering.evaluations import StandingEvaluation
from stream_engine.answering.promotion import PromotedQuestions
from stream_engine.messages import StandingPut, StandingQuery
from stream_engine.session.session import Session, SessionState
from stream_engine.standing.registered_queries import RegisteredQueries, covers
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Lane, Scheduler


class Registration:
    """Registers standing queries, and has them evaluated."""

    def __init__(
        self,
        sessions: Mapping[str, Session],
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

    def register(self, request: StandingPut, question: str, class_name: str) -> StandingQuery:
        """Register a query that asks ``question`` of a class; sessions it covers are evaluated next, at their
        present version."""
        previous = self._standing.get(request.id) if request.id else None
        if previous is not None and (previous.session, previous.question) != (request.pattern, question):
            self.unregister(previous.id)
        query = self._standing.put(request, class_name)
        for session in self._sessions.values():
            self._promoted.registered(session.id)
            if not covers(query.session, session.id) or self._standing.answered(session.id, query.id):
                continue
            if query.question in session.ready:
                self._evaluations.evaluate(query, session)  # decoded for another query of the same question
            elif session.current or session.state is SessionState.EVICTED:
                self._scheduler.add(Lane.STANDING, session.id)
        return query

    def unregister(self, query_id: str) -> bool:
        """False where there is no such query."""
        query = self._standing.get(query_id)
        if query is None:
            return False
        self._standing.delete(query_id)
        for session in self._sessions.values():
            if query.question not in self._standing.keys(session.id):
                session.forget(query.question)
                self._publication.removed(session, query.question)
        return True
