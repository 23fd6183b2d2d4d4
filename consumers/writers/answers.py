"""Answers of standing queries onto the answers topic: every change once, in order per key.

A write that failed is tried again together with what its key got after it: the newest answer is written last,
whatever the broker has of them. So after a minute without a broker an answer may be there twice.

The topic is compacted, its key is ``<session>|<query id>``, its value the JSON of ``AnswerRecord``, whose schema
is ``schemas/answer.schema.json``. A null value says that the query does not ask this session any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from kafka.errors import KafkaError

from consumers.kafka.producer import open_producer
from consumers.kafka.source import SourcePartition
from consumers.writers.spool import DELIVERY_TIMEOUT_MS, Confirmation, Order, Rules, Spool, Write
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import AnswerChanged, AnswerGone, Evaluations
from stream_engine.standing.answer_book import AnswerBook, answer_key
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

_ENCODER = msgspec.json.Encoder()


class AnswerRecord(AnswerChanged, frozen=True, tag=False):
    """A change of a standing query's answer: which data it was computed on (``session_version``, ``offset``,
    ``event_time``), how sure the model was, and what it had answered before. With ``on: commit``, any evaluation.
    ``initial`` marks the first one of a session and query; ``previous`` is then null. Per key, ``session_version``
    only grows."""


@dataclass(frozen=True, slots=True)
class _Change:
    """``before`` is what the topic has, or is given, before it."""

    answer: AnswerChanged | AnswerGone
    before: AnswerChanged | None


class _AnswerRules(Rules[_Change]):
    """``book`` comes to say what the topic has: what is not written is unsaid."""

    what = "answer"
    order = Order.EVERY

    def __init__(self, topic: str, book: AnswerBook, skipped: Skipped) -> None:
        self._topic = topic
        self._book = book
        self._skipped = skipped

    def topic(self, content: _Change) -> str:
        return self._topic

    def message(self, content: _Change) -> dict[str, Any]:
        answer = content.answer
        value = None if isinstance(answer, AnswerGone) else encode(answer)
        return {"key": answer_key(answer.session, answer.query), "value": value}

    def shortened(self, content: _Change, error: KafkaError) -> None:
        answer = content.answer
        self._skipped.note("answer_too_large", f"of {answer.query!r} for {answer.session!r}: {error}")
        self.dropped(content)

    def dropped(self, content: _Change) -> None:
        answer = content.answer
        said = None if isinstance(answer, AnswerGone) else answer
        if self._book.get(answer.session, answer.query) == said:  # else another owner has said more since
            self._book.discard(answer.session, answer.query)
            if content.before is not None:
                self._book.note(content.before)


class AnswerSink:
    """Writes answers without waiting and confirms them in their order; what the topic has already is confirmed
    unwritten. One thread. ``book`` tells what the topic holds; it may be filled by another thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        book: AnswerBook,
        make_producer: Callable[[], Any] | None = None,
        skipped: Skipped | None = None,
    ) -> None:
        """The topic must exist. Raises KafkaTimeoutError where no broker tells about it."""
        self._book = book
        rules = _AnswerRules(settings.answers_topic, book, skipped or Skipped(log))
        self.spool = Spool(rules, make_producer or (lambda: _open(settings)))
        self.repeated = 0

    def take(self, message: Evaluations) -> list[int]:
        """Queue the answers; the offsets that are not settled before the spool has confirmed them."""
        offsets = []
        source = SourcePartition(message.topic, message.partition)
        for answer in message.answers:
            assert answer.offset is not None, "answers of a partition have offsets"
            number = message.number if answer is message.answers[-1] else 0
            ticket = Confirmation(*source, message.generation, answer.offset, number)
            before = self._book.get(answer.session, answer.query)
            if isinstance(answer, AnswerGone):
                news = self._book.discard(answer.session, answer.query)
            else:
                news = self._book.note(answer)
            self.repeated += not news
            change = _Change(answer, before) if news else None
            self.spool.add(Write(source, (answer.session, answer.query), change, [ticket]))
            offsets.append(answer.offset)
        return offsets


def _open(settings: KafkaSettings) -> Any:
    return open_producer(settings, "answers", [settings.answers_topic], DELIVERY_TIMEOUT_MS)


def encode(answer: AnswerChanged) -> bytes:
    """The answer as the topic has it."""
    return _ENCODER.encode(msgspec.convert(answer, AnswerRecord, from_attributes=True))
