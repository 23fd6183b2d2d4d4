"""Answers of standing queries onto the answers topic: every change once, in order per key.

The topic is compacted, its key is ``<session>|<query id>``, its value the JSON of ``AnswerRecord``, whose schema
is ``schemas/answer.schema.json``. A null value says that the query does not ask this session any more.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError

from consumers.client import client_options
from consumers.dead_letter import Confirmation
from stream_engine.answer_book import AnswerBook, answer_key
from stream_engine.config import KafkaSettings
from stream_engine.messages import AnswerChanged, AnswerGone, Evaluations

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0
NEVER_MS = 2**31 - 1
"""An answer that is given up and written once more could come after a newer one: the producer goes on trying."""

_ENCODER = msgspec.json.Encoder()


class AnswerRecord(AnswerChanged, frozen=True, tag=False):
    """A change of a standing query's answer: which data it was computed on (``session_version``, ``offset``,
    ``event_time``), how sure the model was, and what it had answered before. With ``on: commit``, any evaluation.
    ``initial`` marks the first one of a session and query; ``previous`` is then null. Per key, ``session_version``
    only grows."""


@dataclass(slots=True)
class _Outgoing:
    """``answer`` is None where the topic has it already; ``future`` where it was not sent yet."""

    written: Confirmation
    answer: AnswerChanged | AnswerGone | None
    future: Any = None


class AnswerSink:
    """Writes answers without waiting and confirms them in their order. One thread. ``book`` tells what the topic
    holds; it may be filled by another thread."""

    def __init__(self, settings: KafkaSettings, book: AnswerBook, producer: Any = None) -> None:
        """The topic must exist. Raises KafkaTimeoutError where no broker tells about it."""
        self._topic = settings.answers_topic
        self._book = book
        self._producer = producer or KafkaProducer(
            **client_options(settings),
            client_id=f"{settings.group_id}-answers",
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=NEVER_MS,
            linger_ms=5,
            max_block_ms=2_000,  # the poll thread calls: it may not be held up for long
            reconnect_backoff_max_ms=2_000,
        )
        # Once the topic's partitions are known a send does not wait, not even while the broker is away.
        self._producer.partitions_for(self._topic)
        self._outgoing: deque[_Outgoing] = deque()
        self._not_before = 0.0
        self.written = 0
        self.repeated = 0

    @property
    def pending(self) -> int:
        """Answers not confirmed yet."""
        return len(self._outgoing)

    def take(self, message: Evaluations) -> list[int]:
        """Queue the answers; the offsets that are not settled before ``confirmed`` names them."""
        offsets = []
        for answer in message.answers:
            assert answer.offset is not None, "answers of a partition have offsets"
            number = message.number if answer is message.answers[-1] else 0
            written = Confirmation(message.topic, message.partition, message.generation, answer.offset, number)
            if isinstance(answer, AnswerGone):
                news = self._book.discard(answer.session, answer.query)
            else:
                news = self._book.note(answer)
            self.repeated += not news
            self._outgoing.append(_Outgoing(written, answer if news else None))
            offsets.append(answer.offset)
        return offsets

    def confirmed(self) -> list[Confirmation]:
        """Push on what waits, and return what is in the topic by now, in order. What it had already counts."""
        self._push()
        done: list[Confirmation] = []
        while self._outgoing:
            first = self._outgoing[0]
            if first.answer is not None:
                if first.future is None or not first.future.is_done:
                    break
                if first.future.failed():
                    self._retry(first, first.future.exception)
                    break
                self.written += 1
            done.append(self._outgoing.popleft().written)
        return done

    def _push(self) -> None:
        if time.monotonic() < self._not_before:
            return
        for outgoing in self._outgoing:
            answer = outgoing.answer
            if answer is None or outgoing.future is not None:
                continue
            try:
                outgoing.future = self._producer.send(
                    self._topic,
                    key=answer_key(answer.session, answer.query),
                    value=None if isinstance(answer, AnswerGone) else encode(answer),
                )
            except KafkaError as error:
                self._retry(outgoing, error)
                return

    def _retry(self, outgoing: _Outgoing, error: BaseException) -> None:
        written = outgoing.written
        log.warning(
            "answer of %s/%d offset %d not written, trying again: %s: %s",
            *(written.topic, written.partition, written.offset, type(error).__name__, error),
        )
        outgoing.future = None
        self._not_before = time.monotonic() + RETRY_AFTER_S

    def close(self, timeout_s: float) -> None:
        self._producer.close(timeout=timeout_s)


def encode(answer: AnswerChanged) -> bytes:
    """The answer as the topic has it."""
    return _ENCODER.encode(msgspec.convert(answer, AnswerRecord, from_attributes=True))
