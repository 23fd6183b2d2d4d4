"""A Kafka producer that does what the test says: what it was given, and how each write ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.future import Future

from consumers.writers.spool import Confirmation, Spool


@dataclass(eq=False)
class Sent:
    topic: str
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    partition: int | None = None
    future: Future = field(default_factory=Future)

    def succeed(self, offset: int = 0) -> None:
        self.future.success(SimpleNamespace(offset=offset))

    def fail(self, error: BaseException) -> None:
        self.future.failure(error)


class PlayedProducer:
    """Stands for each producer that is made one after another; ``lives`` counts them. With ``refuse`` a send
    raises it; a topic of ``refuse_topics`` is not known to any broker. Given up, it ends what is on its way as
    kafka-python does."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.refuse: Exception | None = None
        self.refuse_topics: set[str] = set()
        self.lives = 0
        self._sender = self

    def make(self) -> PlayedProducer:
        self.lives += 1
        return self

    def send(self, topic: str, **message: Any) -> Future:
        if self.refuse is not None:
            raise self.refuse
        if topic in self.refuse_topics:
            raise KafkaTimeoutError(f"no metadata of {topic}")
        if message["value"] is None and message["key"] is None:
            raise ValueError("Need at least one: key or value")
        self.sent.append(Sent(topic, **message))
        return self.sent[-1].future

    def force_close(self) -> None:
        for message in self.sent:
            if not message.future.is_done:
                message.fail(IllegalStateError("given up"))

    def join(self, timeout: float) -> None:
        pass

    def close(self, timeout: float) -> None:
        pass


class Spooled(Protocol):
    spool: Spool[Any]


def renewed(writer: Spooled) -> list[Confirmation]:
    """What is confirmed, and sent, once there is another producer in the place of one that failed."""
    done = writer.spool.confirmed()
    while not writer.spool._producer.ready():
        pass
    return done + writer.spool.confirmed()


class PlayedSpool:
    """Of a writer without a broker: what a test puts into ``done`` is confirmed."""

    pending = 0
    full = False

    def __init__(self) -> None:
        self.done: list[Confirmation] = []

    def confirmed(self) -> list[Confirmation]:
        done, self.done = self.done, []
        return done
