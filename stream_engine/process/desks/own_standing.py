"""Standing queries without a topic: kept as long as the engine lives, their answers are events only."""

from __future__ import annotations

from collections.abc import Iterable

from stream_engine.engine.engine import Engine
from stream_engine.messages import (
    AnswerChanged,
    Done,
    Evaluations,
    EvaluationsWritten,
    RegistryHello,
    RegistrySnapshot,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingQuery,
    StandingRequest,
)
from stream_engine.messages.transport import Peer
from stream_engine.process.desks.standing_desk import Send, listed, no_query, shown
from stream_engine.session.session import Source


class OwnStandingDesk:
    """Applies each request at once. A registry is a stranger here: the intake refuses what it says."""

    def __init__(self, engine: Engine, send: Send) -> None:
        self._engine = engine
        self._send = send

    def put(self, peer: Peer, request: StandingPut) -> None:
        query = self._engine.register(request)
        self._send(peer, shown(self._engine, query) if isinstance(query, StandingQuery) else query)

    def list(self, peer: Peer, request: StandingRequest) -> None:
        self._send(peer, listed(self._engine, request))

    def delete(self, peer: Peer, request: StandingDelete) -> None:
        self._send(peer, Done() if self._engine.unregister(request.id) else no_query(request.id))

    def greet(self, peer: Peer, message: RegistryHello) -> None: ...

    def replace(self, peer: Peer, message: RegistrySnapshot) -> None: ...

    def apply(self, peer: Peer, message: StandingApply) -> None: ...

    def assigned(self, source: Source) -> None: ...

    def given_up(self, source: Source) -> None: ...

    def written(self, peer: Peer, message: EvaluationsWritten) -> None: ...

    def answered(self, answer: AnswerChanged) -> None: ...

    def evaluations(self) -> Iterable[Evaluations]:
        return ()

    def expire(self) -> None: ...
