"""The dead-letter topic: what could not be taken, and why; confirmed by the broker before its offset settles."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafka.errors import KafkaError

from consumers.kafka.producer import TOO_LARGE, SteadyProducer, open_producer, raise_if_final
from consumers.wire.reasons import DeadLetter
from stream_engine.config import KafkaSettings
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0
CUT_VALUE_BYTES = (65_536, 1_024, 0)
"""Of the value, at the first, second and third cut."""
CUT_KEY_BYTES = 1_024


class Confirmation(NamedTuple):
    """What was written because of this record is in its topic. ``number`` is that of the ``Evaluations`` whose
    last answer this was; 0 for anything else."""

    topic: str
    partition: int
    generation: int
    offset: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class _Outgoing:
    letter: DeadLetter
    generation: int
    cuts: int = 0
    not_before: float = 0.0


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
        self._skipped = skipped or Skipped(log)
        self._left_out: list[Confirmation] = []
        self._topic_suffix = settings.dead_letter_suffix
        self._producer = SteadyProducer(make_producer or (lambda: _open(settings)))
        self._waiting: deque[_Outgoing] = deque()
        self._sent: deque[tuple[Any, _Outgoing]] = deque()

    @property
    def pending(self) -> int:
        """Dead letters not confirmed yet."""
        return len(self._waiting) + len(self._sent)

    def first_pending(self, topic: str, partition: int) -> int | None:
        """The first record of a partition whose dead letter is not confirmed yet."""
        raws = [one.letter.raw for one in (*self._waiting, *(outgoing for _, outgoing in self._sent))]
        return min((raw.offset for raw in raws if (raw.topic, raw.partition) == (topic, partition)), default=None)

    def send(self, letter: DeadLetter, generation: int) -> None:
        self._waiting.append(_Outgoing(letter, generation))

    def confirmed(self) -> list[Confirmation]:
        """Push on what waits, and return what the broker has confirmed since the last call.

        Raises WriteRefused."""
        self._push()
        done, self._left_out = self._left_out, []
        unfinished: deque[tuple[Any, _Outgoing]] = deque()
        for future, outgoing in self._sent:
            if not future.is_done:
                unfinished.append((future, outgoing))
            elif future.succeeded():
                raw = outgoing.letter.raw
                done.append(Confirmation(raw.topic, raw.partition, outgoing.generation, raw.offset))
            else:
                self._producer.failed(future.exception)
                self._retry(outgoing, future.exception)
        self._sent = unfinished
        return done

    def _push(self) -> None:
        if not self._producer.ready():
            return
        now = time.monotonic()
        for _ in range(len(self._waiting)):
            outgoing = self._waiting.popleft()
            if outgoing.not_before > now:
                self._waiting.append(outgoing)
                continue
            letter = outgoing.letter
            try:
                future = self._producer.send(
                    letter.raw.topic + self._topic_suffix,
                    key=_cut(letter.raw.key, CUT_KEY_BYTES) if outgoing.cuts else letter.raw.key,
                    # The producer takes no message without key and value.
                    value=_value(outgoing),
                    headers=headers(letter, outgoing.cuts > 0),
                )
            except TOO_LARGE as error:
                self._shorten(outgoing, error)
            except KafkaError as error:
                self._retry(outgoing, error)
                return  # the broker is away: each further try would block as long again
            else:
                self._sent.append((future, outgoing))

    def _shorten(self, outgoing: _Outgoing, error: BaseException) -> None:
        if outgoing.cuts < len(CUT_VALUE_BYTES):
            self._waiting.append(replace(outgoing, cuts=outgoing.cuts + 1))
            return
        raw = outgoing.letter.raw
        self._skipped.note("dead_letter_too_large", f"{raw.topic}/{raw.partition} at offset {raw.offset}: {error}")
        self._left_out.append(Confirmation(raw.topic, raw.partition, outgoing.generation, raw.offset))

    def _retry(self, outgoing: _Outgoing, error: BaseException) -> None:
        raw = outgoing.letter.raw
        too_large = isinstance(error, TOO_LARGE)
        if too_large and not outgoing.cuts and _cuttable(outgoing.letter):
            self._waiting.append(replace(outgoing, cuts=1))
            return
        if not too_large:  # else it may be that of another one, which ended the producer
            raise_if_final(raw.topic + self._topic_suffix, error)
        log.warning(
            "dead letter of %s/%d offset %d not written, trying again: %s: %s",
            *(raw.topic, raw.partition, raw.offset, type(error).__name__, error),
        )
        self._waiting.append(replace(outgoing, not_before=time.monotonic() + RETRY_AFTER_S))

    def close(self, timeout_s: float) -> None:
        self._producer.close(timeout_s)


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


def _value(outgoing: _Outgoing) -> bytes:
    value = outgoing.letter.value or b""
    return value[: CUT_VALUE_BYTES[outgoing.cuts - 1]] if outgoing.cuts else value


def _cut(data: bytes | None, size: int) -> bytes | None:
    return None if data is None else data[:size]
