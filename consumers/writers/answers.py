"""Answers of standing queries onto the answers topic: every change once, in order per key.

A write that failed is tried again together with what its key got after it: the newest answer is written last,
whatever the broker has of them. So after a minute without a broker an answer may be there twice.

The topic is compacted, its key is ``<session>|<query id>``, its value the JSON of ``AnswerRecord``, whose schema
is ``schemas/answer.schema.json``. A null value says that the query does not ask this session any more.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from kafka.errors import KafkaError

from consumers.kafka.producer import TOO_LARGE, SteadyProducer, open_producer, raise_if_final
from consumers.kafka.source import SourcePartition
from consumers.writers.dead_letter import Confirmation
from stream_engine.config import KafkaSettings
from stream_engine.messages import AnswerChanged, AnswerGone, Evaluations
from stream_engine.standing.answer_book import AnswerBook, answer_key
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0
DELIVERY_TIMEOUT_MS = 30_000
"""Longer than a broker is restarted: until then the producer itself tries again, and writes nothing twice. A
consumer that is cut off must not write much later, when its partitions have another owner."""
CUT_OFF_AFTER_S = 5.0
"""A write that takes so long, of a partition that has another owner by then, is not left to the producer."""

_ENCODER = msgspec.json.Encoder()


class AnswerRecord(AnswerChanged, frozen=True, tag=False):
    """A change of a standing query's answer: which data it was computed on (``session_version``, ``offset``,
    ``event_time``), how sure the model was, and what it had answered before. With ``on: commit``, any evaluation.
    ``initial`` marks the first one of a session and query; ``previous`` is then null. Per key, ``session_version``
    only grows."""


@dataclass(slots=True)
class _Outgoing:
    """``answer`` is None where the topic has it already; ``future`` where it was not sent yet. ``before`` is what
    the topic has, or is given, before it."""

    written: Confirmation
    answer: AnswerChanged | AnswerGone | None
    before: AnswerChanged | None
    future: Any = None
    sent: float = 0.0

    @property
    def source(self) -> SourcePartition:
        return SourcePartition(self.written.topic, self.written.partition)

    @property
    def failed(self) -> bool:
        return self.future is not None and self.future.is_done and self.future.failed()


class AnswerSink:
    """Writes answers without waiting and confirms them in their order. One thread. ``book`` tells what the topic
    holds; it may be filled by another thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        book: AnswerBook,
        make_producer: Callable[[], Any] | None = None,
        skipped: Skipped | None = None,
    ) -> None:
        """The topic must exist. Raises KafkaTimeoutError where no broker tells about it."""
        self._topic = settings.answers_topic
        self._book = book
        self._skipped = skipped or Skipped(log)
        self._producer = SteadyProducer(make_producer or (lambda: _open(settings)))
        self._outgoing: deque[_Outgoing] = deque()
        self._forgotten: set[SourcePartition] = set()
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
        self._forgotten.discard(SourcePartition(message.topic, message.partition))
        for answer in message.answers:
            assert answer.offset is not None, "answers of a partition have offsets"
            number = message.number if answer is message.answers[-1] else 0
            written = Confirmation(message.topic, message.partition, message.generation, answer.offset, number)
            before = self._book.get(answer.session, answer.query)
            if isinstance(answer, AnswerGone):
                news = self._book.discard(answer.session, answer.query)
            else:
                news = self._book.note(answer)
            self.repeated += not news
            self._outgoing.append(_Outgoing(written, answer if news else None, before))
            offsets.append(answer.offset)
        return offsets

    def confirmed(self) -> list[Confirmation]:
        """Push on what waits, and return what is in the topic by now, in order. What it had already counts.

        Raises WriteRefused."""
        self._take_back()
        self._push()
        done: list[Confirmation] = []
        while self._outgoing:
            first = self._outgoing[0]
            if first.answer is not None:
                if first.future is None or not first.future.is_done or first.failed:
                    break
                self.written += 1
            done.append(self._outgoing.popleft().written)
        return done

    def forget(self, source: SourcePartition) -> None:
        """The partition has another owner: what was not sent must not follow its answers, nor what is on its way
        and fails."""
        self._forgotten.add(source)
        self._drop_forgotten()
        now = time.monotonic()
        unfinished = (one for one in self._outgoing if one.source == source and one.future is not None)
        if any(not one.future.is_done and now - one.sent > CUT_OFF_AFTER_S for one in unfinished):
            self._producer.give_up()

    def _drop_forgotten(self) -> None:
        """The newest first, so that the book comes to say what the topic has."""
        kept: deque[_Outgoing] = deque()
        while self._outgoing:
            one = self._outgoing.pop()
            if one.source in self._forgotten and one.future is None:
                self._unsay(one)
            else:
                kept.appendleft(one)
        self._outgoing = kept

    def _unsay(self, one: _Outgoing) -> None:
        answer = one.answer
        if answer is None:
            return
        said = None if isinstance(answer, AnswerGone) else answer
        if self._book.get(answer.session, answer.query) == said:  # else another owner has said more since
            self._book.discard(answer.session, answer.query)
            if one.before is not None:
                self._book.note(one.before)

    def _take_back(self) -> None:
        """What failed, and what its key got after it, is to be sent once more, in the same order."""
        failed = [one for one in self._outgoing if one.failed]
        if not failed:
            return
        for one in failed:
            self._producer.failed(one.future.exception)
            if not isinstance(one.future.exception, TOO_LARGE):  # else the next producer tells which one it was
                raise_if_final(self._topic, one.future.exception)
        self._pause(failed[0], failed[0].future.exception)
        keys = set()
        for one in self._outgoing:
            if one.answer is None:
                continue
            key = one.answer.session, one.answer.query
            if one.failed:
                keys.add(key)
            if key in keys:
                one.future = None
        self._drop_forgotten()

    def _push(self) -> None:
        if time.monotonic() < self._not_before or not self._producer.ready():
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
            except TOO_LARGE as error:
                self._skipped.note("answer_too_large", f"of {answer.query!r} for {answer.session!r}: {error}")
                self._unsay(outgoing)
                outgoing.answer = None
                continue
            except KafkaError as error:
                raise_if_final(self._topic, error)
                self._pause(outgoing, error)
                return
            outgoing.sent = time.monotonic()

    def _pause(self, outgoing: _Outgoing, error: BaseException) -> None:
        written = outgoing.written
        log.warning(
            "answer of %s/%d offset %d not written, trying again: %s: %s",
            *(written.topic, written.partition, written.offset, type(error).__name__, error),
        )
        self._not_before = time.monotonic() + RETRY_AFTER_S

    def close(self, timeout_s: float) -> None:
        self._producer.close(timeout_s)


def _open(settings: KafkaSettings) -> Any:
    return open_producer(settings, "answers", [settings.answers_topic], DELIVERY_TIMEOUT_MS)


def encode(answer: AnswerChanged) -> bytes:
    """The answer as the topic has it."""
    return _ENCODER.encode(msgspec.convert(answer, AnswerRecord, from_attributes=True))
