"""The engine process: messages from the socket into the engine, steps in between, replies and events out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from stream_engine.config.config import Config
from stream_engine.engine.engine import Engine
from stream_engine.messages import AnswerChanged, Asleep, Assign, Batch, ErrorReply, Event, Restore, ToEngine
from stream_engine.messages.transport import EngineServer, Peer
from stream_engine.process.build import build_engine, build_standing_desk
from stream_engine.process.desks.api_desk import ApiDesk
from stream_engine.process.desks.consumer_desk import ConsumerDesk
from stream_engine.process.desks.partition_desk import PartitionDesk
from stream_engine.process.event_feed import EventFeed
from stream_engine.process.handlers import handlers
from stream_engine.process.intake import OfPartition, head_of, refusal
from stream_engine.session.session import IllegalTransition, Source

log = logging.getLogger(__name__)

IDLE_WAIT_MS = 20
"""Longest wait for a message when idle: the heartbeat's rhythm, far below any lease."""
MAX_MESSAGES = 256
ROWS_A_WINDOW = 20
"""Rows of sleepers that are entered in the time of one window."""
MAX_WEIGHT = 512
"""What is taken in between two steps: as many messages, or as many bars and windows as fill some 0.1 s."""


class EngineService:
    """One thread: receives, steps, sends. ``stop`` ends it between two steps."""

    def __init__(self, config: Config, build: Callable[[Callable[[Event], None]], Engine] | None = None) -> None:
        started = time.monotonic()
        self._kafka = config.kafka
        self._server = EngineServer(config.transport, self._unreadable)
        self._events = EventFeed(self._server)
        build = build or (lambda emit: build_engine(config.engine, emit, config))
        self.engine = engine = build(self._publish)
        self._standing = build_standing_desk(config.kafka, engine, self._server.send)
        self._partitions = PartitionDesk(engine, self._standing, self._server)
        self._consumers = ConsumerDesk(config, engine, self._partitions, self._server)
        api = ApiDesk(engine, self._consumers, self._events, self._server, started)
        self._handlers = handlers(self._consumers, self._partitions, self._standing, api)

    def run(self, stop: threading.Event, beat: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop`` is set; ``beat`` is told of each turn. The board is marked dead at the end, so that
        readers refuse at once."""
        log.info("engine ready: model %s, boot %s", self.engine.builder.profile.name, self.engine.boot_id)
        idle = True
        try:
            while not stop.is_set():
                beat()
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
        self._hand_out()
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

    def _hand_out(self) -> None:
        """To the owners of the partitions: evaluations before the acknowledgements that cover them."""
        for evaluations in self._standing.evaluations():
            self._partitions.tell_owner(evaluations)
        self._standing.expire()
        for ack in self.engine.ingest.settle():
            self._partitions.tell_owner(ack)
        for message in self.engine.ingest.dormancy.messages():
            self._partitions.tell_owner(message)

    def _publish(self, event: Event) -> None:
        self._events.publish(self.engine.boot_id, event)
        if isinstance(event, AnswerChanged):
            self._standing.answered(event)

    def _take(self, peer: Peer, message: ToEngine) -> None:
        """One message, and what it may do is bounded by it: what this engine is not for is refused before anything
        is changed, and a handler that raises costs the message (and the partition that it was about, which starts
        again from the log) once everything else is found whole. An invariant that is broken ends the process: what
        it holds cannot be trusted, and Kafka has it all."""
        sizes = self.engine.ingest.partitions.sizes
        refused = refusal(message, self._kafka, sizes, self._consumers.known, peer.identity)
        if refused is not None:
            self._server.skipped.note(refused.reason, f"{type(message).__name__}: {refused.detail}")
            if isinstance(message, Assign | Restore | Asleep | Batch):
                self._partitions.refuse(peer, message, refused.detail)
            return
        try:
            self._handlers[type(message)](peer, message)
        except (AssertionError, IllegalTransition, MemoryError):
            raise
        except Exception as error:
            name = type(message).__name__
            log.exception("a message of type %s failed", name)
            self._server.skipped.note("failed", f"{name}: {type(error).__name__}: {error}")
            if peer.correlation:
                self._server.send(peer, ErrorReply(500, "internal_error", "the engine failed; its log has it"))
            if isinstance(message, OfPartition):
                self._partitions.let_go(Source(message.topic, message.partition))
                self._partitions.refuse(peer, message, f"the engine failed on it: {type(error).__name__}: {error}")
            self.engine.check_integrity()

    def _unreadable(self, peer: Peer, payload: bytes, why: str) -> None:
        """A consumer would wait for ever for what becomes of it."""
        if (head := head_of(payload)) is not None:
            self._partitions.refuse(peer, head, f"the engine cannot read it: {why}")


def _weight(message: ToEngine) -> int:
    """Bars or windows to apply, which take about as long each."""
    if isinstance(message, Batch):
        return sum(len(record.bars) for record in message.records)
    if isinstance(message, Asleep):
        return len(message.sleepers) // ROWS_A_WINDOW
    return len(message.windows) if isinstance(message, Restore) else 0
