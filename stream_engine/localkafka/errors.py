"""What this package raises."""

from __future__ import annotations


class LocalKafkaError(RuntimeError):
    """Kafka cannot be fetched, started or stopped here; the message says what to do about it."""


class PortInUseError(LocalKafkaError):
    """Another program listens on a port that the broker needs."""
