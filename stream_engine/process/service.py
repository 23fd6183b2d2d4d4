"""The engine process: messages from the socket into the engine, steps in between, replies and events out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from stream_engine.answering.query_desk import not_found
from stream_engine.config import Config
from stream_engine.engine.engine import Engine
from stream_engine.messages import (
    AnswerChanged,
    AnswerGone,
    Assign,
    Batch,
    Check,
    ConsumerHello,
    ConsumerReport,
    Done,
    ErrorReply,
    Evaluations,
    EvaluationsWritten,
    Event,
    FromEngine,
    Query,
    Refused,
    RegistryHello,
    RegistrySnapshot,
    Restore,
    Revoke,
    SessionDelete,
    SessionsRequest,
    Snapshot,
    SnapshotRequest,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingQuery,
    StandingRequest,
    StatusRequest,
    ToEngine,
    Welcome,
)
from stream_engine.messages.bounds import MAX_TEXT
from stream_engine.messages.transport import EngineServer, Peer
from stream_engine.process.answer_outbox import Outbox
from stream_engine.process.build import build_engine
from stream_engine.process.intake import OfPartition, PartitionHead, head_of, refusal
from stream_engine.process.registration import Registration, no_query
from stream_engine.process.status import session_info, session_infos, status
from stream_engine.session.session import IllegalTransition, Source

log = logging.getLogger(__name__)

IDLE_WAIT_MS = 20
"""Longest wait for a message when idle: the heartbeat's rhythm, far below any lease."""
MAX_MESSAGES = 256
MAX_WEIGHT = 512
"""What is taken in between two steps: as many messages, or as many bars and windows as fill some 0.1 s."""


class EngineService:
    """One thread: receives, steps, sends. ``stop`` ends it between two steps."""

    def __init__(self, config: Config, build: Callable[[Callable[[Event], None]], Engine] | None = None) -> None:
        self._config = config
        self._server = EngineServer(config.transport, self._unreadable)
        self._sequence = 0
        self._consumers: dict[bytes, float] = {}
        self._reports: dict[bytes, ConsumerReport] = {}
        self._owners: dict[Source, Peer] = {}
        self._outbox = Outbox() if config.kafka.standing_topic else None
        self._started = time.monotonic()
        build = build or (lambda emit: build_engine(config.engine, emit, config))
        self.engine = build(self._publish)
        self._registration = Registration(self.engine, self._send, self._withdraw)

    def run(self, stop: threading.Event) -> None:
        """Serve until ``stop`` is set. The board is marked dead at the end, so that readers refuse at once."""
        log.info("engine ready: model %s, boot %s", self.engine.builder.profile.name, self.engine.boot_id)
        idle = True
        try:
            while not stop.is_set():
                idle = not self.turn(IDLE_WAIT_MS if idle else 0)
                if idle:
                    self.engine.when_idle()
        finally:
            self.engine.close()
            self._server.close()

    def turn(self, wait_ms: int) -> bool:
        """Messages in, one step, and what comes of it out; waits up to ``wait_ms`` for the first message. False
        where there was nothing to run."""
        self._take_in(wait_ms)
        ran = self.engine.step()
        self._hand_out_evaluations()
        self._registration.expire()
        for ack in self.engine.ingest.settle():
            owner = self._owners.get(Source(ack.topic, ack.partition))
            if owner is not None:
                self._server.send(owner, ack)
        return ran

    def _take_in(self, wait_ms: int) -> None:
        """Messages that have come, up to a bound on what they hold, because a query among them waits for its step.
        The heartbeat goes on meanwhile: an engine that refills windows is not a hung one."""
        weight = 0
        for _ in range(MAX_MESSAGES):
            received = self._server.receive(wait_ms, 1)
            if not received:
                return
            ((peer, message),) = received
            wait_ms = 0
            self.engine.publication.heartbeat()
            self._take(peer, message)
            weight += _weight(message)
            if weight >= MAX_WEIGHT:
                return

    def _send(self, peer: Peer, message: FromEngine) -> None:
        """A peer that reconnects comes under another identity, and what goes to the old one is dropped without a
        word: the peer learns of it by its next Welcome."""
        if isinstance(message, Welcome):
            message = msgspec.structs.replace(message, link=peer.identity)
        self._server.send(peer, message)

    def _publish(self, event: Event) -> None:
        self._sequence += 1
        self._server.publish(self.engine.boot_id, self._sequence, event)
        if self._outbox is not None and isinstance(event, AnswerChanged):
            self._outbox.add(event)

    def _withdraw(self, gone: AnswerGone) -> None:
        """Only answers of partitions that are owned here: the others have an engine of their own."""
        if self._outbox is not None and self.engine.ingest.partitions.get(Source(gone.topic, gone.partition)):
            self._outbox.add(gone)

    def _hand_out_evaluations(self) -> None:
        """To the owners of the partitions, before the acknowledgements that cover them."""
        for source, number, answers in self._outbox.take() if self._outbox is not None else ():
            owned, owner = self.engine.ingest.partitions.get(source), self._owners.get(source)
            if owned is not None and owner is not None:
                message = Evaluations(
                    self.engine.boot_id, source.topic, source.partition, owned.generation, number, answers
                )
                self._server.send(owner, message)

    def _take(self, peer: Peer, message: ToEngine) -> None:
        """One message, and what it may do is bounded by it: what this engine is not for is refused before anything
        is changed, and a handler that raises costs the message (and the partition that it was about, which starts
        again from the log) once everything else is found whole. An invariant that is broken ends the process: what
        it holds cannot be trusted, and Kafka has it all."""
        partitions = self.engine.ingest.partitions
        refused = refusal(message, self._config.kafka, partitions.sizes, self._consumers, peer.identity)
        if refused is not None:
            self._server.skipped.note(refused.reason, f"{type(message).__name__}: {refused.detail}")
            if isinstance(message, Assign | Restore | Batch):
                self._refuse(peer, message, refused.detail)
            return
        try:
            self._handle(peer, message)
        except (AssertionError, IllegalTransition, MemoryError):
            raise
        except Exception as error:
            name = type(message).__name__
            log.exception("a message of type %s failed", name)
            self._server.skipped.note("failed", f"{name}: {type(error).__name__}: {error}")
            if peer.correlation:
                self._server.send(peer, ErrorReply(500, "internal_error", "the engine failed; its log has it"))
            if isinstance(message, OfPartition):
                self._let_go(Source(message.topic, message.partition))
                self._refuse(peer, message, f"the engine failed on it: {type(error).__name__}: {error}")
            self.engine.check_integrity()

    def _refuse(self, peer: Peer, message: OfPartition | PartitionHead, reason: str) -> None:
        where = message.topic, message.partition, message.generation
        self._server.send(peer.unsolicited(), Refused(self.engine.boot_id, *where, None, reason[:MAX_TEXT]))

    def _unreadable(self, peer: Peer, payload: bytes, why: str) -> None:
        """A consumer would wait for ever for what becomes of it."""
        if (head := head_of(payload)) is not None:
            self._refuse(peer, head, f"the engine cannot read it: {why}")

    def _let_go(self, source: Source) -> None:
        owned = self.engine.ingest.partitions.get(source)
        if owned is not None:
            self.engine.ingest.revoke(Revoke(source.topic, source.partition, owned.generation))
            if self._outbox is not None:
                self._outbox.drop(source)

    def _handle(self, peer: Peer, message: ToEngine) -> None:
        engine = self.engine
        if isinstance(message, Query):
            engine.queries.ask(message, lambda reply: self._server.send(peer, reply))
        elif isinstance(message, Check):
            engine.verification.offer(message)
        elif isinstance(message, Batch):
            refused = engine.ingest.take(message)
            if refused is not None:
                self._server.send(peer.unsolicited(), refused)
        elif isinstance(message, Assign):
            if not engine.ingest.assign(message):
                return  # the newer owner keeps its acknowledgements; this one's batches are refused
            source = Source(message.topic, message.partition)
            self._owners[source] = peer.unsolicited()
            if self._outbox is not None:
                self._outbox.again(source)
                for gone in self._registration.orphans(source):
                    self._outbox.add(gone)
            log.info(
                "partition %s/%d assigned: replay from %d, live from %d",
                message.topic,
                message.partition,
                message.start,
                message.live_from,
            )
        elif isinstance(message, Restore):
            engine.ingest.restore(message)
            log.info("%d windows restored of %s/%d", len(message.windows), message.topic, message.partition)
        elif isinstance(message, Revoke):
            engine.ingest.revoke(message)
            source = Source(message.topic, message.partition)
            if self._outbox is not None and engine.ingest.partitions.get(source) is None:
                self._outbox.drop(source)
            log.info("partition %s/%d revoked", message.topic, message.partition)
        elif isinstance(message, EvaluationsWritten):
            source = Source(message.topic, message.partition)
            owned = engine.ingest.partitions.get(source)
            if self._outbox is not None and owned is not None and owned.generation == message.generation:
                self._outbox.written(source, message.number)
        elif isinstance(message, RegistryHello | RegistrySnapshot | StandingApply):
            self._registration.handle(peer, message)
        elif isinstance(message, StandingPut) and self._config.kafka.standing_topic:
            self._registration.put(peer, message)
        elif isinstance(message, StandingDelete) and self._config.kafka.standing_topic:
            self._registration.delete(peer, message)
        elif (
            isinstance(message, StandingRequest)
            and self._config.kafka.standing_topic
            and (unavailable := self._registration.unavailable()) is not None
        ):
            self._server.send(peer, unavailable)
        elif isinstance(message, ConsumerHello):
            self._consumers[peer.identity] = time.monotonic()
            self._send(peer.unsolicited(), Welcome(engine.boot_id, engine.settings.credits))
        elif isinstance(message, ConsumerReport):
            self._consumers[peer.identity] = time.monotonic()
            self._reports[peer.identity] = message
            self._learn_sizes()
        else:
            self._server.send(peer, self._request(message))

    def _request(
        self,
        message: SessionsRequest
        | SessionDelete
        | StandingPut
        | StandingRequest
        | StandingDelete
        | SnapshotRequest
        | StatusRequest,
    ) -> FromEngine:
        engine = self.engine
        match message:
            case SessionsRequest(session=None):
                return session_infos(engine)
            case SessionsRequest(session=str(session_id)):
                session = engine.sessions.get(session_id)
                return session_info(engine, session) if session else not_found(session_id)
            case SessionDelete(session=session_id):
                session = engine.sessions.get(session_id)
                if session is None:
                    return not_found(session_id)
                engine.drop_session(session)
                return Done("the session lives again with its next record" if session.source else "")
            case StandingPut():
                answer = engine.register(message)
                return StandingQueries((answer,)) if isinstance(answer, StandingQuery) else answer
            case StandingRequest(id=None):
                return StandingQueries(engine.standing.all())
            case StandingRequest(id=str(query_id)):
                query = engine.standing.get(query_id)
                return StandingQueries((query,)) if query else no_query(query_id)
            case StandingDelete(id=query_id):
                return Done() if engine.unregister(query_id) else no_query(query_id)
            case SnapshotRequest(session=session_id, query=query_id):
                return Snapshot(self._sequence, engine.standing.answers(session_id, query_id))
        return status(engine, self._started, *self._heard())

    def _heard(self) -> tuple[int, Mapping[bytes, ConsumerReport], int, dict[str, int]]:
        return self._alive(), self._reports, self._server.malformed, self._server.skipped.counts

    def _learn_sizes(self) -> None:
        """How many partitions the topics have, as the consumers say that are there. Partitions behind that were
        assigned by nobody who reads them: they would never be live."""
        self._alive()
        table = self.engine.ingest.partitions
        for topic in self._config.kafka.source_topics:
            told = [report.partitions[topic] for report in self._reports.values() if topic in report.partitions]
            if told:
                table.sizes[topic] = max(told)
        for owned in table.all():
            source = owned.source
            if source.partition >= table.sizes.get(source.topic, source.partition + 1):
                self._server.skipped.note("unknown_partition", f"{source.topic}/{source.partition} is let go")
                self._let_go(source)

    def _alive(self) -> int:
        """Consumers heard of lately."""
        now = time.monotonic()
        for identity, heard in list(self._consumers.items()):
            if now - heard > self._config.engine.stuck_after_s:
                del self._consumers[identity]
                self._reports.pop(identity, None)
        return len(self._consumers)


def _weight(message: ToEngine) -> int:
    """Bars or windows to apply, which take about as long each."""
    if isinstance(message, Batch):
        return sum(len(record.bars) for record in message.records)
    return len(message.windows) if isinstance(message, Restore) else 0
