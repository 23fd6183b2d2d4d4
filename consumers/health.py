"""The consumer's sign of life: a small file that its loop writes, and what a health check reads from it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stream_engine.config.rules import ConfigError
from stream_engine.messages.bounds import UNREADABLE, ClockMs, Count, Name, PartitionName, Text
from stream_engine.util.atomic_file import write_atomically
from stream_engine.util.bounded_file import read_bounded
from stream_engine.util.timestamps import rfc3339

log = logging.getLogger(__name__)

MAX_BYTES = 2**20
"""Of the file; it has some hundred."""
STALE_AFTER_S = 15.0
"""A turn of the loop takes far less, also while a broker does not answer its lookups."""


class Health(msgspec.Struct, frozen=True):
    """As of ``at_ms``: what the engine is to the consumer (``welcomed``, ``absent``, ``silent``), since when Kafka
    has not answered, and which partitions are ``stopped`` by what cannot be read. Times in milliseconds since the
    epoch."""

    pid: Count
    at_ms: ClockMs
    engine: Name
    kafka_silent_since_ms: ClockMs | None = None
    stopped: dict[PartitionName, Text] = {}


class HealthFile:
    """Written by the consumer's loop about once a second, and gone after a clean stop."""

    def __init__(self, path: Path) -> None:
        """The folder is made where it is absent. Raises ConfigError where it cannot be."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"kafka.health_file = {str(path)!r}: {error}") from error
        self._path = path
        self._failed = False

    def write(
        self, now_ms: int, engine: str, kafka_silent_since_ms: int | None, stopped: Mapping[str, str] = {}
    ) -> None:
        """A reader sees the old content or the new one, never a part. Where it cannot be written (a full disk,
        say) the log says so once: the consumer goes on, and its health check fails."""
        try:
            health = Health(
                pid=os.getpid(),
                at_ms=now_ms,
                engine=engine,
                kafka_silent_since_ms=kafka_silent_since_ms,
                stopped=dict(stopped),
            )
            write_atomically(self._path, msgspec.json.encode(health))
        except OSError as error:
            if not self._failed:
                log.warning("kafka.health_file cannot be written, going on without: %s", error)
            self._failed = True
        else:
            self._failed = False

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def stopped_partitions(path: Path) -> list[str]:
    """Where its partitions stand, and why, of which nothing comes: the others go on, so that it is no ailment."""
    try:
        health = msgspec.json.decode(read_bounded(path, MAX_BYTES), type=Health)
    except (OSError, *UNREADABLE):
        return []
    return [f"{partition} {reason}" for partition, reason in sorted(health.stopped.items())]


def ailments(path: Path, now_ms: int) -> list[str]:
    """What keeps the consumer of this file from its work, in words; empty where nothing does."""
    try:
        health = msgspec.json.decode(read_bounded(path, MAX_BYTES), type=Health)
    except FileNotFoundError:
        return [f"no consumer has written {path}: it is not running, or has another kafka.health_file"]
    except (OSError, *UNREADABLE) as error:
        return [f"{path}: {error}"]
    found = []
    if (age := (now_ms - health.at_ms) / 1000) > STALE_AFTER_S:
        found.append(f"the loop of process {health.pid} has not turned for {age:.0f} s")
    if health.engine != "welcomed":
        found.append(f"the engine is {health.engine}")
    if health.kafka_silent_since_ms is not None:
        found.append(f"Kafka has not answered since {rfc3339(health.kafka_silent_since_ms * 1000)}")
    return found
