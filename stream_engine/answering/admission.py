"""Which queries may be answered on the present state: questions that the model answers, sessions that are here,
freshness bounds that are met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stream_engine.answering.refusals import RETRY_AFTER_S, not_found, unsupported
from stream_engine.decision.freshness import age_of, unmet_bound
from stream_engine.decision.route import Route
from stream_engine.messages import ErrorReply, Query
from stream_engine.questions.router import Router
from stream_engine.session.session import Session, SessionState
from stream_engine.state.partitions import PartitionTable

WAKING = "session_waking"
"""Kind of the refusal of a query that waits for its session to wake."""


class Sleepers(Protocol):
    """Who sleeps, and is awake for having been asked."""

    def wake(self, session_id: str) -> bool:
        """Have a session brought back; False where none of that id sleeps."""
        ...

    def touch(self, session: Session) -> None:
        """A session is asked."""


class Admission:
    """Looks at a query before it is worked on. At most ``max_queries`` may wait."""

    def __init__(
        self,
        router: Router,
        sessions: Mapping[str, Session],
        partitions: PartitionTable,
        sleepers: Sleepers,
        max_queries: int,
    ) -> None:
        self._router = router
        self._sessions = sessions
        self._partitions = partitions
        self._sleepers = sleepers
        self._max_queries = max_queries

    def route(self, query: Query) -> Route:
        return self._router.route(query.question, query.session)

    def overload(self, waiting: int) -> ErrorReply | None:
        """Why one more than the ``waiting`` queries may not wait as well; None when it may."""
        if waiting < self._max_queries:
            return None
        message = f"{self._max_queries} queries wait for the engine already: ask again"
        return ErrorReply(429, "overloaded", message, retry_after_s=RETRY_AFTER_S)

    def look(self, query: Query, now_ms: int) -> Session | ErrorReply:
        """The session, whose present state may answer the query, or why that cannot be."""
        route = self.route(query)
        if route.question_class is None and not self._router.answers_anything:
            return unsupported(self._router)
        session = self._sessions.get(query.session)
        if session is None and self._sleepers.wake(query.session):
            message = f"session {query.session!r} has slept, and its window is being read; ask again"
            return ErrorReply(503, WAKING, message, retry_after_s=RETRY_AFTER_S)
        if session is None and self._partitions.filling:
            message = f"session {query.session!r} is not here: windows are being filled from the log; ask again"
            return ErrorReply(503, "session_rebuilding", message, retry_after_s=RETRY_AFTER_S)
        if session is None:
            return not_found(query.session)
        self._sleepers.touch(session)
        if session.state in (SessionState.REBUILDING, SessionState.EMPTY):
            message = f"session {session.id!r} is being filled from the log; ask again"
            return ErrorReply(503, "session_rebuilding", message, retry_after_s=RETRY_AFTER_S)
        bound = query.min_offset
        topic = session.source.topic if session.source else ""
        size = self._partitions.sizes.get(topic)
        if bound is not None and size is not None and bound.partition >= size:
            message = f"{topic} has no partition {bound.partition}: it has {size}"
            return ErrorReply(
                status=422,
                kind="invalid_request_error",
                message=message,
                param="min_offset",
                code="no_such_partition",
            )
        unmet = unmet_bound(
            query,
            version=session.version,
            applied=self._partitions.applied(bound.partition, topic or None) if bound else None,
            age_ms=age_of(session.timestamp_ms, now_ms),
        )
        return ErrorReply(409, "freshness_not_met", unmet) if unmet else session
