"""A producer that is replaced after each failure, and what its errors mean.

An idempotent producer of kafka-python 3.0.12 may be of no use once a write has failed. After an error of the
broker that is not retriable it answers every later send with that same error; and where a write that it had tried
again runs out of time, it gives its producer id up, asks for no other, and writes nothing any more without a word.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaProducer
from kafka.errors import (
    ClusterAuthorizationFailedError,
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    RetriableError,
    TopicAuthorizationFailedError,
    UnknownProducerIdError,
)

from consumers.kafka.client import client_options
from consumers.kafka.topics import message_limits
from stream_engine.config.kafka import KafkaSettings

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 1.0
OPEN_WITHIN_S = 30.0
END_WAIT_S = 10.0
DEFAULT_LIMIT = 1_000_000
"""Bytes of a message, where the broker does not tell: somewhat less than its own default."""
BATCH_BYTES = 16_384

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
_FORBIDDEN = (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)
_GIVEN_UP = IllegalStateError
"""Of what a producer held when it was replaced."""
_PASSING = (
    RetriableError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
    InvalidProducerEpochError,
    _GIVEN_UP,
)


class WriteRefused(RuntimeError):
    """The broker does not take what has to be written; the message says what to do."""


def raise_if_final(topic: str, error: BaseException) -> None:
    """Raises WriteRefused where writing it to the topic once more cannot help."""
    if isinstance(error, _PASSING):
        return
    if isinstance(error, TOO_LARGE):
        advice = "give the topic a larger max.message.bytes"
    elif isinstance(error, _FORBIDDEN):
        advice = "give the user of this consumer the right to write to it"
    else:
        advice = "the broker's log may tell why"
    raise WriteRefused(f"topic {topic} cannot be written: {type(error).__name__}: {error}; {advice}") from error


class LimitedProducer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no type marker
    """Refuses at once what its topic would refuse later, and then together with everything that is on its way.
    ``limits`` are bytes of a message by topic; ``refusals`` is how often a broker found one too large after all:
    less is taken then."""

    limits: Mapping[str, int] = {}
    refusals = 0

    def send(self, topic: str, **message: Any) -> Any:
        size = self._estimate_size_in_bytes(message.get("key"), message.get("value"), message.get("headers"))
        known = self.limits.get(topic)
        # The first refusal of a known limit may be an older one's, which was read anew since.
        limit = DEFAULT_LIMIT >> self.refusals if known is None else known >> max(0, self.refusals - 1)
        # A deletion cannot be made shorter: it is tried for as long as the broker refuses it.
        if size > limit and message.get("value") is not None:
            raise MessageSizeTooLargeError(f"{size} bytes, and topic {topic} takes {limit} (max.message.bytes)")
        return super().send(topic, **message)


def open_producer(
    settings: KafkaSettings, name: str, topics: Iterable[str], delivery_timeout_ms: int | None = None
) -> LimitedProducer:
    """A producer that knows ``topics`` and their limits, named after the group and ``name``. Raises KafkaError."""
    topics = list(topics)
    limits = message_limits(settings, topics)
    within: dict[str, int] = {}
    if delivery_timeout_ms is not None:
        within = {"delivery_timeout_ms": delivery_timeout_ms, "request_timeout_ms": delivery_timeout_ms // 2}
    producer = LimitedProducer(
        **client_options(settings),
        **within,
        batch_size=min([BATCH_BYTES, *limits.values()]),  # the limit of a topic is one of batches
        client_id=f"{settings.group_id}-{name}",
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        max_block_ms=2_000,  # the poll thread calls: it may not be held up for long
        reconnect_backoff_max_ms=2_000,
    )
    producer.limits = limits
    try:
        for topic in topics:
            _know(producer, topic)
    except BaseException:
        producer.close(timeout=0)
        raise
    return producer


def _know(producer: KafkaProducer, topic: str) -> None:
    """Its partitions are asked for until they are there: a broker that is slow at the start is no broker that
    is away."""
    deadline = time.monotonic() + OPEN_WITHIN_S
    while True:
        try:
            producer.partitions_for(topic)
            return
        except KafkaTimeoutError:
            if time.monotonic() > deadline:
                raise


class SteadyProducer:
    """``make`` gives a KafkaProducer that knows its topics: a send of it does not wait, not even while the broker
    is away. One thread calls the methods; ``make`` is later called beside it, because it waits for the broker."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """Raises what ``make`` does."""
        self._make = make
        self._producer: Any = make()
        self._given_up: Any = None
        self._refusals = 0
        self._renewal: threading.Thread | None = None

    def ready(self) -> bool:
        """False while the next producer is not there yet: nothing can be sent then."""
        if self._renewal is not None and self._renewal.is_alive():
            return False
        if self._producer is None:
            self._renewal = threading.Thread(target=self._renew, name="kafka-producer", daemon=True)
            self._renewal.start()
            return False
        return True

    def _renew(self) -> None:
        before, self._given_up = self._given_up, None
        try:
            if before is not None:
                before._sender.join(END_WAIT_S)
                before.close(timeout=0)
            producer = self._make()
            producer.refusals = self._refusals
            self._producer = producer
        except Exception as error:  # whatever it is, nothing is lost by trying again
            log.warning("no new producer, trying again: %s: %s", type(error).__name__, error)
            time.sleep(RETRY_PAUSE_S)

    def send(self, topic: str, **message: Any) -> Any:
        """A future of when it is written. Call it when ``ready``. Raises KafkaError."""
        return self._producer.send(topic, **message)

    def failed(self, error: BaseException) -> None:
        """A future has failed so: the producer is replaced."""
        self._refusals += isinstance(error, TOO_LARGE) and self._producer is not None
        if not isinstance(error, _GIVEN_UP):
            self.give_up()

    def give_up(self) -> None:
        """Replace the producer. What is not written yet is written no more; those futures fail soon."""
        if self._producer is not None:
            # Its close() would leave what is on its way to its thread, for as long as that takes.
            self._producer._sender.force_close()
            self._given_up, self._producer = self._producer, None

    def close(self, timeout_s: float) -> None:
        """Wait for what is on its way."""
        if self._producer is not None:
            self._producer.close(timeout=timeout_s)
