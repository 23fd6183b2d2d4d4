"""The dead-letter topic: what could not be taken, and why; confirmed by the broker before its offset settles."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kafka.errors import KafkaError

from consumers.kafka.producer import open_producer
from consumers.kafka.source import SourcePartition
from consumers.wire.reasons import DeadLetter
from consumers.writers.spool import Confirmation, Order, Rules, Spool, Write
from stream_engine.config.kafka import KafkaSettings
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

CUT_VALUE_BYTES = (65_536, 1_024, 0)
"""Of the value, at the first, second and third cut."""
CUT_KEY_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class _Cut:
    """A letter that was cut so often."""

    letter: DeadLetter
    cuts: int = 0


class _LetterRules(Rules[_Cut]):
    """A letter too large is cut; where not even its headers fit, it is left out and counted."""

    what = "dead letter"
    order = Order.ANY

    def __init__(self, topic_suffix: str, skipped: Skipped) -> None:
        self._topic_suffix = topic_suffix
        self._skipped = skipped

    def topic(self, content: _Cut) -> str:
        return content.letter.raw.topic + self._topic_suffix

    def message(self, content: _Cut) -> dict[str, Any]:
        raw = content.letter.raw
        return {
            "key": _cut(raw.key, CUT_KEY_BYTES) if content.cuts else raw.key,
            "value": _value(content),  # the producer takes no message without key and value
            "headers": headers(content.letter, content.cuts > 0),
        }

    def shortened(self, content: _Cut, error: KafkaError) -> _Cut | None:
        if content.cuts < len(CUT_VALUE_BYTES):
            return replace(content, cuts=content.cuts + 1)
        raw = content.letter.raw
        self._skipped.note("dead_letter_too_large", f"{raw.topic}/{raw.partition} at offset {raw.offset}: {error}")
        return None

    def after_refusal(self, content: _Cut) -> _Cut | None:
        return replace(content, cuts=1) if not content.cuts and _cuttable(content.letter) else None


class DeadLetterWriter:
    """Writes dead letters without waiting, and retries until each is confirmed. One thread.

    A record near the broker's size limit does not fit together with its headers: it is then cut, and the header
    ``truncated`` names its original size. Where not even the headers fit, the letter is left out and counted. The
    whole record stays in its own topic."""

    def __init__(
        self,
        settings: KafkaSettings,
        make_producer: Callable[[], Any] | None = None,
        skipped: Skipped | None = None,
    ) -> None:
        """The topic must exist. Raises KafkaTimeoutError where no broker tells about it."""
        rules = _LetterRules(settings.dead_letter_suffix, skipped or Skipped(log))
        self.spool = Spool(rules, make_producer or (lambda: _open(settings)))

    def first_pending(self, topic: str, partition: int) -> int | None:
        """The first record of a partition whose dead letter is not confirmed yet."""
        writes = (write for write in self.spool if write.source == (topic, partition))
        return min((ticket.offset for write in writes for ticket in write.tickets), default=None)

    def send(self, letter: DeadLetter, generation: int) -> None:
        source = SourcePartition(letter.raw.topic, letter.raw.partition)
        ticket = Confirmation(*source, generation, letter.raw.offset)
        self.spool.add(Write(source, None, _Cut(letter), [ticket]))


def headers(letter: DeadLetter, cut: bool = False) -> list[tuple[str, bytes]]:
    """Where the record lies and why it is here. ``bar`` is its index within a list; absent for a whole record."""
    raw = letter.raw
    named: list[tuple[str, bytes]] = [
        ("topic", raw.topic.encode()),
        ("partition", str(raw.partition).encode()),
        ("offset", str(raw.offset).encode()),
        ("key", _cut(raw.key, CUT_KEY_BYTES) or b""),
        ("reason", str(letter.reason).encode()),
        ("detail", letter.detail.encode(errors="replace")),
    ]
    if letter.bar is not None:
        named.append(("bar", str(letter.bar).encode()))
    if cut:
        named.append(("truncated", str(len(letter.value or b"")).encode()))
    return named


def _open(settings: KafkaSettings) -> Any:
    topics = (topic + settings.dead_letter_suffix for topic in settings.source_topics)
    return open_producer(settings, "dead-letters", topics)


def _cuttable(letter: DeadLetter) -> bool:
    return len(letter.value or b"") > CUT_VALUE_BYTES[0] or len(letter.raw.key or b"") > CUT_KEY_BYTES


def _value(content: _Cut) -> bytes:
    value = content.letter.value or b""
    return value[: CUT_VALUE_BYTES[content.cuts - 1]] if content.cuts else value


def _cut(data: bytes | None, size: int) -> bytes | None:
    return None if data is None else data[:size]
