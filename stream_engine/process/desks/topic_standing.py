"""Standing queries by way of their topic: what is registered here is what the topic says.

A request is validated, written to the topic by a registry, read back from there and applied; only then it is
answered. So every engine applies the same records in the same order, and a restart finds them. Their answers go to
the answers topic by way of the owners of the partitions that they rest on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import uuid4

from stream_engine.answering.refusals import unsupported
from stream_engine.decision.entry import entry_key
from stream_engine.engine.engine import Engine
from stream_engine.messages import (
    AnswerChanged,
    AnswerGone,
    Done,
    ErrorReply,
    Evaluations,
    EvaluationsWritten,
    FromEngine,
    RegistryApplied,
    RegistryHello,
    RegistrySnapshot,
    Rejected,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingQuery,
    StandingRequest,
    StandingWrite,
    Welcome,
)
from stream_engine.messages.transport import Peer
from stream_engine.process.desks.answer_outbox import AnswerOutbox
from stream_engine.process.desks.orphans import Orphans
from stream_engine.process.desks.standing_desk import Send, listed, no_query, shown
from stream_engine.session.session import Source
from stream_engine.standing.answer_book import KEY_SEPARATOR

REGISTRY_LOST_S = 5.0
"""A registry greets every second: one that was not heard of for so long is away."""
WRITE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class _Pending:
    peer: Peer
    deadline: float


class TopicStandingDesk:
    """Between the API and the registries, which read and write the topic. Times are of ``clock``, in seconds."""

    def __init__(self, engine: Engine, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._send = send
        self._clock = clock
        self._outbox = AnswerOutbox()
        self._orphans = Orphans(engine.standing)
        self._heard: dict[Peer, float] = {}
        self._pending: dict[str, _Pending] = {}
        self._parts: tuple[Peer | None, list[RegistrySnapshot]] = None, []
        self._applied = -1
        self._known = False

    def unavailable(self) -> ErrorReply | None:
        """Why standing queries can neither be told nor changed now; None when they can."""
        if self._known:
            return None
        message = (
            "standing queries are kept in a Kafka topic, and this engine has not got them yet: a consumer "
            "(stream-engine serve consumer) reads them from there"
        )
        return ErrorReply(503, "registry_unavailable", message, retry_after_s=1.0)

    # --- of the API ----------------------------------------------------------------------------------

    def put(self, peer: Peer, request: StandingPut) -> None:
        engine = self._engine
        if engine.router.route(request.question, request.pattern).question_class is None:
            self._send(peer, unsupported(engine.router))
            return
        if request.id is not None and KEY_SEPARATOR in request.id:
            message = f"an id of a standing query has no {KEY_SEPARATOR!r}"
            self._send(peer, ErrorReply(422, "invalid_request_error", message, param="id"))
            return
        query_id = request.id or f"sq-{uuid4().hex[:12]}"
        query = StandingPut(request.pattern, entry_key(request.question), request.on, query_id)
        self._write(peer, query_id, query)

    def list(self, peer: Peer, request: StandingRequest) -> None:
        self._send(peer, self.unavailable() or listed(self._engine, request))

    def delete(self, peer: Peer, request: StandingDelete) -> None:
        if self._known and self._engine.standing.get(request.id) is None:
            self._send(peer, no_query(request.id))
            return
        self._write(peer, request.id, None)

    def _write(self, peer: Peer, query_id: str, query: StandingPut | None) -> None:
        now = self._clock()
        if (unavailable := self.unavailable()) is not None:
            self._send(peer, unavailable)
            return
        self._heard = {registry: heard for registry, heard in self._heard.items() if now - heard < REGISTRY_LOST_S}
        if not self._heard:
            message = (
                "standing queries are kept in a Kafka topic, and nothing that writes it is there any more: start "
                "a consumer (stream-engine serve consumer), or see why it does not reach its broker"
            )
            self._send(peer, ErrorReply(503, "registry_unavailable", message, retry_after_s=REGISTRY_LOST_S))
            return
        token = uuid4().hex
        self._pending[token] = _Pending(peer, now + WRITE_WITHIN_S)
        latest = max(self._heard, key=self._heard.__getitem__)
        self._send(latest, StandingWrite(token, query_id, query))

    def expire(self) -> None:
        now = self._clock()
        for token in [token for token, pending in self._pending.items() if now >= pending.deadline]:
            pending = self._pending.pop(token)
            message = (
                f"the standing-query topic did not confirm the write within {WRITE_WITHIN_S:g} s; it may still be "
                "applied: list the standing queries before trying again"
            )
            error = ErrorReply(503, "registry_unavailable", message, retry_after_s=WRITE_WITHIN_S)
            self._send(pending.peer, error)

    # --- of a registry -------------------------------------------------------------------------------

    def greet(self, peer: Peer, message: RegistryHello) -> None:
        registry = self._hear(peer)
        self._send(registry, Welcome(self._engine.boot_id, 0, registry.identity))

    def replace(self, peer: Peer, message: RegistrySnapshot) -> None:
        registry = self._hear(peer)
        whole = self._whole(registry, message)
        if whole is None:
            return
        refused = self._replace(whole)
        applied = RegistryApplied(self._engine.boot_id, message.offset, snapshot=True, refused=refused)
        self._send(registry, applied)

    def apply(self, peer: Peer, message: StandingApply) -> None:
        registry = self._hear(peer)
        refused = self._apply(message)
        applied = RegistryApplied(self._engine.boot_id, message.offset, snapshot=False, refused=refused)
        self._send(registry, applied)

    def _hear(self, peer: Peer) -> Peer:
        registry = peer.unsolicited()
        self._heard[registry] = self._clock()
        return registry

    def _whole(self, registry: Peer, part: RegistrySnapshot) -> RegistrySnapshot | None:
        """The snapshot that ``part`` completes. None while more follow, and where some are missing: the registry
        sends it again. One of them is put together at a time, so that what is held is bounded."""
        if part.part == 0:
            self._parts = registry, []
        owner, parts = self._parts
        if owner != registry or part.part != len(parts):
            return None
        parts.append(part)
        if part.more:
            return None
        self._parts = registry, []
        return RegistrySnapshot(
            part.offset,
            tuple(record for part in parts for record in part.queries),
            tuple(answer for part in parts for answer in part.answers),
        )

    def _replace(self, snapshot: RegistrySnapshot) -> tuple[Rejected, ...]:
        refused: tuple[Rejected, ...] = ()
        if snapshot.offset >= self._applied:  # else another registry is further already
            named = {record.id for record in snapshot.queries}
            for query in self._engine.standing.all():
                if query.id not in named:
                    self._enter(StandingApply(snapshot.offset, query.id, None))
            refused = tuple(rejected for record in snapshot.queries for rejected in self._enter(record))
            self._applied = snapshot.offset
        self._engine.standing.restore(snapshot.answers)
        self._known = True
        return refused

    def _apply(self, record: StandingApply) -> tuple[Rejected, ...]:
        if record.offset <= self._applied:
            return ()  # another registry was quicker
        self._applied = record.offset
        return self._enter(record)

    def _enter(self, record: StandingApply) -> tuple[Rejected, ...]:
        reply: FromEngine
        refused: tuple[Rejected, ...] = ()
        self._orphans.suspect(record.id)
        if record.query is None:
            self._engine.unregister(record.id)
            reply = Done()
        else:
            query = self._engine.register(record.query)
            if isinstance(query, StandingQuery):
                reply = shown(self._engine, query)
            else:
                self._engine.unregister(record.id)  # the newest record of an id counts, whatever it says
                refused = (Rejected(record.offset, query.code or query.kind, query.message),)
                reply = query
        pending = self._pending.pop(record.token, None) if record.token else None
        if pending is not None:
            self._send(pending.peer, reply)
        return refused

    # --- answers on their way to their topic ---------------------------------------------------------

    def assigned(self, source: Source) -> None:
        self._outbox.again(source)
        self._orphans.suspect_all()

    def given_up(self, source: Source) -> None:
        self._outbox.drop(source)

    def written(self, peer: Peer, message: EvaluationsWritten) -> None:
        source = Source(message.topic, message.partition)
        owned = self._engine.ingest.partitions.get(source)
        if owned is not None and owned.generation == message.generation:
            self._outbox.written(source, message.number)

    def answered(self, answer: AnswerChanged) -> None:
        self._outbox.add(answer)

    def evaluations(self) -> Iterator[Evaluations]:
        for gone in self._orphans.take():
            # Only those of partitions that are owned here: the others have an engine of their own.
            if self._engine.ingest.partitions.get(_source(gone)) is not None:
                self._outbox.add(gone)
        for source, number, answers in self._outbox.take():
            owned = self._engine.ingest.partitions.get(source)
            if owned is not None:
                yield Evaluations(
                    boot_id=self._engine.boot_id,
                    topic=source.topic,
                    partition=source.partition,
                    generation=owned.generation,
                    number=number,
                    answers=answers,
                )


def _source(gone: AnswerGone) -> Source:
    return Source(gone.topic, gone.partition)
