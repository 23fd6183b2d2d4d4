"""One producer after another; the Kafka clients are played."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kafka.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumberError,
)

from consumers.kafka import producer as module
from consumers.kafka.producer import SteadyProducer, WriteRefused, raise_if_final
from stream_engine.config.kafka import KafkaSettings


class Client:
    """``closed`` says how it ended."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self._sender = self

    def send(self, topic: str, **_: Any) -> Client:
        return self

    def force_close(self) -> None:
        self.closed.append("given up")

    def join(self, timeout: float) -> None:
        self.closed.append("joined")

    def close(self, timeout: float) -> None:
        self.closed.append("closed")


class Broker:
    """Where clients come from; ``errors`` are raised first."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.errors: list[Exception] = []
        self.threads: list[threading.Thread] = []

    def connect(self) -> Client:
        self.threads.append(threading.current_thread())
        if self.errors:
            raise self.errors.pop()
        self.clients.append(Client())
        return self.clients[-1]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(module, "RETRY_PAUSE_S", 0.0)
    return Broker()


def until_ready(steady: SteadyProducer) -> None:
    while not steady.ready():
        pass


def test_a_failure_is_followed_by_another_producer_once_the_first_one_has_ended(broker: Broker) -> None:
    steady = SteadyProducer(broker.connect)
    assert steady.ready()
    steady.failed(KafkaTimeoutError("expired"))
    until_ready(steady)
    first, second = broker.clients
    assert first.closed == ["given up", "joined", "closed"]
    assert steady.send("topic") is second
    assert broker.threads[0] is threading.current_thread()
    assert broker.threads[1] is not threading.current_thread(), "it may wait for the broker"


def test_what_was_given_up_does_not_end_the_next_producer(broker: Broker) -> None:
    steady = SteadyProducer(broker.connect)
    steady.failed(KafkaTimeoutError("expired"))
    steady.failed(KafkaTimeoutError("expired, too"))
    until_ready(steady)
    steady.failed(IllegalStateError("closed forcefully"))
    assert steady.ready()
    assert len(broker.clients) == 2


def test_a_producer_is_made_once_the_broker_is_back(broker: Broker) -> None:
    steady = SteadyProducer(broker.connect)
    broker.errors = [KafkaTimeoutError("no broker"), KafkaTimeoutError("no broker")]
    steady.give_up()
    until_ready(steady)
    assert len(broker.threads) == 4
    steady.close(5.0)
    assert broker.clients[1].closed == ["closed"]


@pytest.mark.parametrize(
    "error", [KafkaTimeoutError(), OutOfOrderSequenceNumberError(), IllegalStateError("closed forcefully")]
)
def test_what_passes_is_not_final(error: Exception) -> None:
    raise_if_final("topic", error)


def test_what_does_not_pass_says_which_topic_it_is() -> None:
    with pytest.raises(WriteRefused, match=r"topic market.bars.dlq cannot be written: InvalidTopicError"):
        raise_if_final("market.bars.dlq", InvalidTopicError())


class SlowBroker:
    """A producer whose broker tells of a topic at the third ask."""

    def __init__(self, **_: Any) -> None:
        self.asked, self.closed = 0, False
        self.limits: dict[str, int] = {}

    def partitions_for(self, topic: str) -> set[int]:
        self.asked += 1
        if self.asked < 3:
            raise KafkaTimeoutError("Failed to update metadata after 2.0 secs.")
        return {0}

    def close(self, timeout: float) -> None:
        self.closed = True


def test_a_broker_that_is_slow_at_the_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "message_limits", lambda *_: {"t": 1_000})
    monkeypatch.setattr(module, "LimitedProducer", SlowBroker)
    producer: Any = module.open_producer(KafkaSettings(), "dead-letters", ["t"])
    assert (producer.asked, producer.closed) == (3, False)


def test_a_broker_that_never_tells_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SlowBroker] = []

    def make(**_: Any) -> SlowBroker:
        made.append(SlowBroker())
        made[0].asked = -1_000_000
        return made[0]

    monkeypatch.setattr(module, "message_limits", lambda *_: {"t": 1_000})
    monkeypatch.setattr(module, "LimitedProducer", make)
    monkeypatch.setattr(module, "OPEN_WITHIN_S", -1.0)
    with pytest.raises(KafkaTimeoutError):
        module.open_producer(KafkaSettings(), "dead-letters", ["t"])
    assert (made[0].asked, made[0].closed) == (-999_999, True)
