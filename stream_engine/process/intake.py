"""What the engine takes from its socket, and what it refuses by name before anything is changed.

A decoded message is within the bounds of its type; here it is held against what this engine is for. What passes
and then raises is a fault of the engine's own: see ``EngineService``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import (
    Asleep,
    Assign,
    Batch,
    ConsumerHello,
    ConsumerReport,
    EvaluationsWritten,
    RegistryHello,
    RegistrySnapshot,
    Restore,
    Revoke,
    StandingApply,
    ToEngine,
)
from stream_engine.messages.bounds import UNREADABLE, Count, PartitionNumber, Topic

GENERATION_AHEAD_US = 3_600_000_000
"""Generations are of a consumer's clock: one of an hour ahead would fence out all others until then."""
MAX_CONSUMERS = 1_000

OfPartition = Assign | Revoke | Restore | Asleep | Batch | EvaluationsWritten
OfRegistry = RegistryHello | RegistrySnapshot | StandingApply


@dataclass(frozen=True, slots=True)
class Refusal:
    """``reason`` is part of a counter's name."""

    reason: str
    detail: str


class PartitionHead(msgspec.Struct, frozen=True):
    """The part of a consumer's message that says what it is about, read where the whole of it cannot be."""

    type: Literal["Assign", "Restore", "Asleep", "Batch"]
    topic: Topic
    partition: PartitionNumber
    generation: Count


_decode_head = msgspec.msgpack.Decoder(PartitionHead).decode


def head_of(payload: bytes) -> PartitionHead | None:
    """What an unreadable message is about; None where not even that can be read."""
    try:
        return _decode_head(payload)
    except UNREADABLE:
        return None


def refusal(
    message: ToEngine, kafka: KafkaSettings, sizes: Mapping[str, int], consumers: Collection[bytes], peer: bytes
) -> Refusal | None:
    """Why this engine does not take the message; None where it does. ``sizes`` are the partitions that the topics
    have, as far as that is known."""
    if isinstance(message, ConsumerHello | ConsumerReport):
        if peer not in consumers and len(consumers) >= MAX_CONSUMERS:
            return Refusal("too_many_consumers", f"{MAX_CONSUMERS} consumers are known already")
        return None
    if isinstance(message, OfRegistry) and not kafka.standing_topic:
        return Refusal("no_standing_topic", "this engine keeps its standing queries itself (kafka.standing_topic)")
    if not isinstance(message, OfPartition):
        return None
    if message.topic not in kafka.source_topics:
        bars, trades = kafka.source_topics
        return Refusal(
            "unknown_topic",
            f"topic {message.topic!r} is none of this engine's (kafka.bars_topic = {bars!r}, kafka.trades_topic = "
            f"{trades!r}): give the consumer and the engine the same settings",
        )
    if isinstance(message, Assign):
        size = sizes.get(message.topic)
        if size is not None and message.partition >= size:
            return Refusal("unknown_partition", f"topic {message.topic!r} has {size} partitions")
        if message.generation > time.time_ns() // 1_000 + GENERATION_AHEAD_US:
            detail = f"generation {message.generation} is of a time to come: compare the clocks of both machines"
            return Refusal("generation_ahead", detail)
    return None
