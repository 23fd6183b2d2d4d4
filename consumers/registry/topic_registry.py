"""The registry: standing queries from their topic into the engine, and from the engine into their topic.

A thread of the consumer process with its own clients. It follows the standing-query topic, the answers topic and
its own dead letters. An engine gets a snapshot of what they hold before any partition is assigned to it, then each
record; what the API registers comes by the same way.

The newest record of an id counts. A malformed one is dead-lettered, and its id has no query any more: an older
record would be gone by the next compaction, and a restart may not change what is asked.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import msgspec
from kafka.errors import KafkaError, RetriableError

from consumers.engine_watch import EngineWatch, Presence
from consumers.kafka.producer import SteadyProducer, open_producer
from consumers.kafka.salvage import Unread
from consumers.kafka.source import SourcePartition, SourceUnavailable, raw_record
from consumers.kafka.tail import TopicTail
from consumers.registry.standing_records import TOKEN_HEADER, encode_standing, parse_standing, query_id
from consumers.wire.parts import split
from consumers.wire.reasons import DeadLetter, RawRecord
from consumers.writers.answers import AnswerRecord
from consumers.writers.dead_letter import DeadLetterWriter
from stream_engine.config.config import Config
from stream_engine.config.rules import ConfigError
from stream_engine.messages import (
    AnswerChanged,
    FromEngine,
    RegistryApplied,
    RegistryHello,
    RegistrySnapshot,
    StandingApply,
    StandingWrite,
    Welcome,
)
from stream_engine.messages.bounds import UNREADABLE
from stream_engine.messages.standing import MAX_SNAPSHOT_PARTS
from stream_engine.messages.transport import EngineLink
from stream_engine.standing.answer_book import KEY_SEPARATOR, AnswerBook
from stream_engine.util.closing import close_all
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

POLL_MS = 50
RETRY_PAUSE_S = 0.5
ANSWER_WITHIN_S = 10.0
WRITE_WITHIN_MS = 4_000
"""Less than the engine waits: what was answered by 503 should not be applied after all."""
CLOSE_WAIT_S = 5.0
MAX_TOKEN_BYTES, OFFSET_DIGITS = 64, 19

PART_BYTES = 16 * 2**20
"""Of a snapshot's part: well below what a frame between processes may hold."""

_encode = msgspec.msgpack.Encoder().encode
_decode_answer = msgspec.json.Decoder(AnswerRecord).decode


@dataclass(slots=True)
class _Sync:
    """One snapshot for one engine: read up to ``ends``, then sent at ``sent`` (None before)."""

    boot_id: str
    begun: float
    ends: dict[SourcePartition, int]
    sent: float | None = None


class TopicRegistry:
    """``turn`` may be called by hand in tests; only ``ready_for``, ``failure`` and ``stopped`` are for other
    threads."""

    def __init__(self, config: Config, book: AnswerBook, skipped: Skipped) -> None:
        """The topics must exist. Raises ConfigError, KafkaError."""
        kafka = config.kafka
        self._config = config
        self._topic = kafka.standing_topic
        self._letters_topic = kafka.standing_topic + kafka.dead_letter_suffix
        self._book = book
        self._skipped = skipped
        self._tail = TopicTail(kafka, [self._topic, kafka.answers_topic, self._letters_topic], "registry")
        count = sum(partition.topic == self._topic for partition in self._tail.partitions)
        if count != 1:
            raise ConfigError(
                f"kafka.standing_topic = {self._topic!r}: the topic has {count} partitions, and needs exactly "
                "one, because its records have an order; make it anew, or name another"
            )
        self._producer = SteadyProducer(
            lambda: open_producer(kafka, "standing-queries", [kafka.standing_topic], WRITE_WITHIN_MS)
        )
        self._failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self._letters = DeadLetterWriter(kafka, skipped=skipped)
        self._link = EngineLink(config.transport, skipped)
        self._watch = EngineWatch(time.monotonic())
        self._offset = -1
        self._queries: dict[str, tuple[StandingApply, RawRecord]] = {}
        self._malformed: list[DeadLetter] = []
        self._lettered: set[int] = set()
        self._sync: _Sync | None = None
        self._lock = threading.Lock()
        self._synced: tuple[str, float] | None = None
        self._needed = 0.0
        self.failure: BaseException | None = None
        self.stopped: dict[SourcePartition, str] = {}
        """What cannot be read any further, and why: no partition starts anew meanwhile."""

    def ready_for(self, boot_id: str | None, since: float) -> bool:
        """Whether this engine has everything that the topics held at ``since`` (monotonic clock) or later."""
        with self._lock:
            self._needed = max(self._needed, since)
            return self._synced is not None and self._synced[0] == boot_id and self._synced[1] >= since

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. What trying again cannot help is left in ``failure``."""
        try:
            while not stop.is_set():
                try:
                    self.turn()
                except (RetriableError, SourceUnavailable) as error:
                    log.warning("registry: trying again: %s: %s", type(error).__name__, error)
                    stop.wait(RETRY_PAUSE_S)
        except Exception as error:  # the consumer's thread raises it
            self.failure = error
        finally:
            self._close()

    def turn(self) -> None:
        """One round: the engine's messages, new records, dead letters, a snapshot where one is due."""
        for message in self._link.drain():
            self._on_message(message)
        self._keep_engine(time.monotonic())
        for record in self._tail.poll(POLL_MS):
            self._take(record)
        self.stopped = self._tail.stopped()
        self._letters.spool.confirmed()
        while not self._failures.empty():
            self._producer.failed(self._failures.get())
        self._synchronise(time.monotonic())

    # --- the engine ----------------------------------------------------------------------------------

    def _keep_engine(self, now: float) -> None:
        self._watch.check(now)
        if self._watch.relink_due(now):
            self._link.close()
            self._link = EngineLink(self._config.transport, self._skipped)
            self._forget_sync()
        if self._watch.hello_due(now):
            self._link.send(RegistryHello())

    def _forget_sync(self) -> None:
        """What was sent by the old link may be lost."""
        self._sync = None
        with self._lock:
            self._synced = None

    def _on_message(self, message: FromEngine) -> None:
        now = time.monotonic()
        if isinstance(message, Welcome):
            if self._watch.welcome(message.boot_id, message.credits, message.link, now):
                self._forget_sync()
        elif isinstance(message, StandingWrite):
            self._write(message)
        elif isinstance(message, RegistryApplied):
            self._watch.heard(message.boot_id, now)
            records = {record.offset: raw for record, raw in self._queries.values()}
            for refused in message.refused:
                raw = records.get(refused.offset)
                if raw is not None:
                    self._letter(DeadLetter(raw, raw.value, refused.reason, refused.detail))
            sync = self._sync
            if message.snapshot and sync is not None and sync.boot_id == message.boot_id:
                with self._lock:
                    self._synced = (sync.boot_id, sync.begun)
                self._sync = None

    def _write(self, message: StandingWrite) -> None:
        value = None if message.query is None else encode_standing(message.query)
        if not self._producer.ready():
            log.warning("standing query %r not written: the broker does not answer", message.id)
            return
        try:
            future = self._producer.send(
                self._topic,
                key=message.id.encode(),
                value=value,
                headers=[(TOKEN_HEADER, message.token.encode())],
                partition=0,
            )
        except KafkaError as error:
            log.warning("standing query %r not written: %s: %s", message.id, type(error).__name__, error)
        else:
            future.add_errback(lambda error: self._not_written(message.id, error))

    def _not_written(self, query_id: str, error: BaseException) -> None:
        """On the producer's thread. The engine answers the request by 503."""
        self._failures.put(error)
        log.warning("standing query %r not written: %s: %s", query_id, type(error).__name__, error)

    def _synchronise(self, now: float) -> None:
        boot_id = self._watch.boot_id
        if self._watch.presence is not Presence.WELCOMED or boot_id is None:
            return
        sync = self._sync
        if sync is not None and (
            sync.boot_id != boot_id or (sync.sent is not None and now - sync.sent > ANSWER_WITHIN_S)
        ):
            sync = self._sync = None
        if sync is None:
            with self._lock:
                synced, needed = self._synced, self._needed
            if synced is not None and synced[0] == boot_id and synced[1] >= needed:
                return
            sync = self._sync = _Sync(boot_id, now, self._tail.ends(self._tail.partitions))
        if sync.sent is None and self._tail.reached(sync.ends):
            self._drop_impossible()
            malformed, self._malformed = self._malformed, []
            for letter in malformed:
                self._letter(letter)
            queries = tuple(record for record, _ in self._queries.values())
            answers = self._book.all()
            parts = snapshot_parts(self._offset, queries, answers)
            for part in parts:
                self._link.send(part)
            if (left := len(queries) + len(answers) - sum(len(p.queries) + len(p.answers) for p in parts)) > 0:
                self._skipped.note("snapshot_shortened", f"{left} of its entries are more than the engine takes")
            sync.sent = now
            log.info("engine %s gets %d standing queries", boot_id, len(queries))

    def _drop_impossible(self) -> None:
        """Answers from behind the end of their partition are of an earlier topic of that name: its versions began
        anew, and would never reach theirs."""
        ours = (self._config.kafka.bars_topic, self._config.kafka.trades_topic)
        answers = [answer for answer in self._book.all() if answer.topic in ours]
        existing = {partition for topic in ours for partition in self._tail.partitions_of(topic)}
        ends = self._tail.ends(existing & {_source(answer) for answer in answers})
        for answer in answers:
            if (answer.offset or 0) >= ends.get(_source(answer), 0):
                self._book.discard(answer.session, answer.query)

    # --- records -------------------------------------------------------------------------------------

    def _take(self, record: Any) -> None:
        if record.topic == self._topic:
            self._take_standing(record)
        elif record.topic == self._letters_topic:
            named = dict(record.headers)
            offset = named.get("offset") or b""
            if named.get("topic") == self._topic.encode() and offset.isdigit() and len(offset) <= OFFSET_DIGITS:
                self._lettered.add(int(offset))
        else:
            self._take_answer(record)

    def _take_standing(self, record: Any) -> None:
        raw = raw_record(record)
        token = dict(record.headers).get(TOKEN_HEADER) or b""
        ours = 0 < len(token) <= MAX_TOKEN_BYTES and token.isascii()
        parsed = parse_standing(raw, token.decode() if ours else None)
        self._offset = raw.offset
        if isinstance(parsed, DeadLetter):
            if self._malformed_before_first_sync:
                self._malformed.append(parsed)
            else:
                self._letter(parsed)
            parsed = StandingApply(raw.offset, query_id(raw.key) or "", None)  # no query has the empty id
        self._queries.pop(parsed.id, None)
        if parsed.query is not None:
            self._queries[parsed.id] = (parsed, raw)  # popped first: the order is that of the topic
        synced, sync = self._synced, self._sync
        told = sync is not None and sync.sent is not None and sync.boot_id == self._watch.boot_id
        if told or (synced is not None and synced[0] == self._watch.boot_id):
            self._link.send(parsed)

    @property
    def _malformed_before_first_sync(self) -> bool:
        """Which of them have their dead letter already is known once the topics were read to their ends."""
        return self._synced is None and (self._sync is None or self._sync.sent is None)

    def _take_answer(self, record: Any) -> None:
        if isinstance(record.value, Unread):
            where = f"up to offset {record.offset} of {record.topic}"
            self._skipped.note("answer_unreadable", f"{where}: {record.value.fault}")
            return
        session, separator, query = (record.key or b"").decode(errors="replace").rpartition(KEY_SEPARATOR)
        if record.value is None:
            self._book.discard(session, query)
            return
        try:
            answer = _decode_answer(record.value)
            if not separator or (answer.session, answer.query) != (session, query):
                raise ValueError(f"the key is {record.key!r}")
            if answer.topic is None or answer.partition is None or answer.offset is None:
                raise ValueError("it names no record that it was computed on")
        except (*UNREADABLE, ValueError) as error:
            where = f"{record.topic}/{record.partition} at offset {record.offset}"
            self._skipped.note("answer_unreadable", f"{where}: {error}")
            return
        self._book.note(msgspec.convert(answer, AnswerChanged, from_attributes=True))

    def _letter(self, letter: DeadLetter) -> None:
        if letter.raw.offset in self._lettered:
            return
        self._lettered.add(letter.raw.offset)
        log.warning("standing query at offset %d is dead-lettered: %s", letter.raw.offset, letter.detail)
        self._letters.send(letter, 0)

    def _close(self) -> None:
        close_all(
            log,
            lambda: self._tail.close(CLOSE_WAIT_S),
            lambda: self._producer.close(CLOSE_WAIT_S),
            lambda: self._letters.spool.close(CLOSE_WAIT_S),
            self._link.close,
        )


def snapshot_parts(
    offset: int, queries: Iterable[StandingApply], answers: Iterable[AnswerChanged], most: int = PART_BYTES
) -> list[RegistrySnapshot]:
    """A snapshot in messages of a bounded size. What is more than all parts hold is left out: answers first, which
    are then told once more as first ones."""
    items: Iterable[StandingApply | AnswerChanged] = chain(queries, answers)
    parts = list(islice(split(items, lambda item: len(_encode(item)), most), MAX_SNAPSHOT_PARTS)) or [[]]
    return [
        RegistrySnapshot(
            offset,
            tuple(item for item in part if isinstance(item, StandingApply)),
            tuple(item for item in part if isinstance(item, AnswerChanged)),
            part=number,
            more=number < len(parts) - 1,
        )
        for number, part in enumerate(parts)
    ]


def _source(answer: AnswerChanged) -> SourcePartition:
    assert answer.topic is not None
    assert answer.partition is not None
    return SourcePartition(answer.topic, answer.partition)
