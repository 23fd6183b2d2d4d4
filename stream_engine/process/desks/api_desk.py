"""What the API asks of the engine, but for standing queries: questions, checks, sessions, health."""

from __future__ import annotations

from stream_engine.answering.refusals import not_found
from stream_engine.engine.engine import Engine
from stream_engine.messages import (
    Check,
    Done,
    FromEngine,
    Query,
    SessionDelete,
    SessionsRequest,
    Snapshot,
    SnapshotRequest,
    StatusRequest,
)
from stream_engine.messages.transport import EngineServer, Peer
from stream_engine.process.desks.consumer_desk import ConsumerDesk
from stream_engine.process.event_feed import EventFeed
from stream_engine.process.status import session_info, session_infos, sleeper_info, status


class ApiDesk:
    """Every request gets exactly one reply, a check none. ``started`` is when the process did, on the monotonic
    clock."""

    def __init__(
        self, engine: Engine, consumers: ConsumerDesk, events: EventFeed, server: EngineServer, started: float
    ) -> None:
        self._engine = engine
        self._consumers = consumers
        self._events = events
        self._server = server
        self._started = started

    def query(self, peer: Peer, message: Query) -> None:
        self._engine.queries.ask(message, lambda reply: self._server.send(peer, reply))

    def check(self, peer: Peer, message: Check) -> None:
        self._engine.verification.offer(message)

    def sessions(self, peer: Peer, message: SessionsRequest) -> None:
        self._server.send(peer, self._sessions(message))

    def _sessions(self, message: SessionsRequest) -> FromEngine:
        if message.session is None:
            return session_infos(self._engine, message)
        session = self._engine.sessions.get(message.session)
        if session is not None:
            return session_info(self._engine, session)
        return sleeper_info(self._engine, message.session) or not_found(message.session)

    def delete_session(self, peer: Peer, message: SessionDelete) -> None:
        session = self._engine.sessions.get(message.session)
        if session is None and not self._engine.drop_sleeper(message.session):
            self._server.send(peer, not_found(message.session))
            return
        if session is not None:
            self._engine.drop_session(session)
        again = "the session lives again with its next record" if session is None or session.source else ""
        self._server.send(peer, Done(again))

    def snapshot(self, peer: Peer, message: SnapshotRequest) -> None:
        answers = self._engine.standing.answers(message.session, message.query)
        self._server.send(peer, Snapshot(self._events.sequence, answers))

    def status(self, peer: Peer, message: StatusRequest) -> None:
        self._consumers.forget_silent()
        told = status(
            self._engine,
            self._started,
            len(self._consumers.known),
            self._consumers.reports,
            self._server.malformed,
            self._server.skipped.counts,
        )
        self._server.send(peer, told)
