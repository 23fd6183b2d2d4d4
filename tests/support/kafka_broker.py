"""The broker that tests of Kafka's behaviour share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A broker that tests share: they keep to topics and groups of their own and never stop it."""

    bootstrap: str
    """`host:port`, or a list of them with commas"""
