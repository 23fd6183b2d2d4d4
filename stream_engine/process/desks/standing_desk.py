"""What is said to the engine about standing queries, and what becomes of their answers. There are two ways: with a
topic and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from stream_engine.engine.engine import Engine
from stream_engine.messages import (
    AnswerChanged,
    ErrorReply,
    Evaluations,
    EvaluationsWritten,
    FromEngine,
    RegistryHello,
    RegistrySnapshot,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingQuery,
    StandingRequest,
)
from stream_engine.messages.transport import Peer
from stream_engine.session.session import Source

Send = Callable[[Peer, FromEngine], None]


class StandingDesk(Protocol):
    """Takes the messages about standing queries. What has a reply is answered through ``Send``, now or later."""

    # --- of the API ----------------------------------------------------------------------------------

    def put(self, peer: Peer, request: StandingPut) -> None:
        """Answered by the query once it is applied, or by an error."""

    def list(self, peer: Peer, request: StandingRequest) -> None:
        """Answered by ``StandingQueries``, or by an error."""

    def delete(self, peer: Peer, request: StandingDelete) -> None:
        """Answered by ``Done`` once it is applied, or by an error."""

    # --- of a registry -------------------------------------------------------------------------------

    def greet(self, peer: Peer, message: RegistryHello) -> None:
        """Answered by ``Welcome``."""

    def replace(self, peer: Peer, message: RegistrySnapshot) -> None:
        """Answered by ``RegistryApplied``."""

    def apply(self, peer: Peer, message: StandingApply) -> None:
        """Answered by ``RegistryApplied``."""

    # --- of the owners of partitions -----------------------------------------------------------------

    def assigned(self, source: Source) -> None:
        """The partition has a new owner."""

    def given_up(self, source: Source) -> None:
        """The partition is not owned here any more."""

    def written(self, peer: Peer, message: EvaluationsWritten) -> None:
        """The answers topic holds what was handed out of the partition, up to a number."""

    # --- of the service ------------------------------------------------------------------------------

    def answered(self, answer: AnswerChanged) -> None:
        """The engine tells of it."""

    def evaluations(self) -> Iterable[Evaluations]:
        """What the owners are to write to the answers topic, before the acknowledgements that cover it."""
        ...

    def expire(self) -> None:
        """Requests that were not applied in time are answered so."""


def listed(engine: Engine, request: StandingRequest) -> StandingQueries | ErrorReply:
    """All standing queries, or the one that is asked for."""
    if request.id is None:
        return StandingQueries(tuple(engine.registration.shown(query) for query in engine.standing.all()))
    query = engine.standing.get(request.id)
    return shown(engine, query) if query is not None else no_query(request.id)


def shown(engine: Engine, query: StandingQuery) -> StandingQueries:
    """One of them."""
    return StandingQueries((engine.registration.shown(query),))


def no_query(query_id: str) -> ErrorReply:
    """No standing query has that id."""
    return ErrorReply(404, "not_found_error", f"no standing query {query_id!r}", param="id")
