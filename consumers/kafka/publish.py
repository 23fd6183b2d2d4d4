"""Bars onto a topic, at a chosen pace."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError

from consumers.kafka.client import client_options
from consumers.kafka.topics import require_topic
from consumers.wire.reasons import RawRecord
from consumers.wire.records import parse_records
from stream_engine.config.kafka import KafkaSettings

log = logging.getLogger(__name__)

FLUSH_S = 30.0


class PublishError(RuntimeError):
    """Some bars did not reach the broker; the message says how many and why."""


def publish(
    bars: Iterable[tuple[str, dict[str, Any]]],
    settings: KafkaSettings,
    topic: str,
    speed: float = 0.0,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Send (symbol, bar) pairs in their order, the symbol as key; the number sent, all of them confirmed.

    ``speed`` is bars per second over all symbols, 0 for as fast as the broker takes them. ``progress`` is called
    with 1 for every bar. What was sent is flushed when interrupted, too.

    Raises BrokerUnreachable, AccessRefused, TopicMissing, or PublishError where bars were not confirmed."""
    require_topic(settings, topic)
    encode = msgspec.json.Encoder().encode
    failures: list[BaseException] = []
    sent = 0
    producer = KafkaProducer(
        **client_options(settings),
        client_id="stream-engine-produce",
        acks="all",
        linger_ms=5,
        max_block_ms=10_000,
    )
    try:
        started = time.monotonic()
        for symbol, bar in bars:
            if speed > 0:
                time.sleep(max(0.0, started + sent / speed - time.monotonic()))
            producer.send(topic, key=symbol.encode(), value=encode(bar)).add_errback(failures.append)
            sent += 1
            if progress is not None:
                progress(1)
    except KafkaError as error:  # no answer in time, or a bar that is larger than a message may be
        raise PublishError(f"topic {topic} takes no more records after {sent} bars: {error}") from error
    finally:
        _flush(producer, failures)
    if failures:
        raise PublishError(f"{len(failures)} of {sent} bars were not written: {failures[0]}")
    return sent


def refusals(bars: Iterable[tuple[str, dict[str, Any]]], topic: str) -> Counter[str]:
    """How many of the bars the consumer would dead-letter if they came now, by reason."""
    encode, now_ms = msgspec.json.Encoder().encode, time.time_ns() // 1_000_000
    raws = [RawRecord(topic, 0, at, now_ms, symbol.encode(), encode(bar)) for at, (symbol, bar) in enumerate(bars)]
    return Counter(str(letter.reason) for parsed in parse_records(raws) for letter in parsed.dead)


def _flush(producer: Any, failures: list[BaseException]) -> None:
    try:
        producer.flush(timeout=FLUSH_S)
    except KafkaError as error:
        failures.append(error)
    producer.close(timeout=5)
