"""Records that others left on our topics, on a real broker, and messages of a stranger to the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from kafka import OffsetAndMetadata, TopicPartition
from kafka.consumer import KafkaConsumer

from stream_engine.messages import Assign, StandingPut, Status, StatusRequest
from tests.support.hash_service import PATIENCE_S, TREND, Service, until
from tests.support.hostile import NESTED


@pytest.fixture
def service(kafka: Any, topic_prefix: str, tmp_path: Path) -> Iterator[Service]:
    made = Service(kafka.bootstrap, topic_prefix, tmp_path)
    yield made
    made.close()


def status(service: Service) -> Status:
    reply = service.ask(StatusRequest())
    assert isinstance(reply, Status)
    return reply


def counted(service: Service, name: str) -> float:
    """A counter of the consumer, as the engine tells it."""
    return sum(counters.get(name, 0.0) for counters in status(service).consumer_counters.values())


def test_records_of_others_on_our_topics_are_skipped_and_counted(service: Service) -> None:
    names = service.kafka
    windows_key = f"{names.bars_topic}|".encode()
    for topic, key, value in (
        (names.answers_topic, b"a|b", NESTED),
        (names.answers_topic, b"\xff\xfe|b", b"{}"),
        (names.windows_topic, windows_key + b"\xff\xfe", b"\x80"),
        (names.windows_topic, f"{names.bars_topic}/open|".encode() + b"\xff\xfe", b"\x80"),
        (names.windows_topic, windows_key + b"A", b"\x91" * 20_000),
        (names.standing_topic, b"deep", NESTED),
    ):
        service.producer.send(topic, key=key, value=value, partition=0).get(PATIENCE_S)
    committing = KafkaConsumer(bootstrap_servers=names.bootstrap_servers, group_id=names.group_id)
    partition = TopicPartition(names.bars_topic, 0)
    committing.assign([partition])
    committing.commit({partition: OffsetAndMetadata(0, "[" * 4_000, -1)})
    committing.close()
    service.start_engine()
    service.start_consumer()
    service.standing("trend", {"session": "*", "question": TREND})
    service.bars("AAPL", range(3))
    until(lambda: service.version("AAPL") == 3, "the bars are applied")
    until(lambda: service.answers("AAPL", "trend"), "the standing query is answered")
    until(lambda: counted(service, "skipped_answer_unreadable_total") == 2, "both answers are counted")
    until(lambda: counted(service, "skipped_window_unreadable_total") == 3, "the windows are counted")
    assert service.registered() == {"trend"}
    letters = service.records(names.standing_topic + names.dead_letter_suffix)
    assert [(letter.key, dict(letter.headers)["reason"]) for letter in letters] == [
        (b"deep", b"not_a_standing_query")
    ]
    service.stop("consumer")  # the same again, from the committed offset on
    service.start_consumer()
    service.bars("AAPL", range(3, 5))
    until(lambda: service.version("AAPL") == 5, "a restart reads the same records")


@pytest.fixture
def stranger() -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    yield socket
    socket.close(linger=0)
    context.term()


def test_a_stranger_on_the_socket_costs_the_engine_nothing(service: Service, stranger: zmq.Socket[bytes]) -> None:
    service.start_engine()
    service.start_consumer()
    service.bars("AAPL", range(3))
    until(lambda: service.version("AAPL") == 3, "the bars are applied")
    until(lambda: status(service).ready, "ready")
    stranger.connect(service.config.transport.engine)
    below = msgspec.to_builtins(Assign(service.kafka.bars_topic, 0, 9, 0, 0)) | {"partition": -1}
    for message in (below, Assign("t", 0, 1, 0, 0), Assign(service.kafka.bars_topic, 9, 1, 0, 0)):
        stranger.send_multipart([b"", msgspec.msgpack.encode(message)])
    stranger.send_multipart([b"1", NESTED])
    until(lambda: status(service).counters["messages_skipped_total"] == 4, "all four are counted")
    stranger.send_multipart([b"", bytes(64 * 2**20 + 1)])
    service.bars("AAPL", range(3, 6))
    until(lambda: service.version("AAPL") == 6, "the engine goes on")
    until(lambda: status(service).ready, "ready as before")
    owned = [(held.topic, held.partition) for held in status(service).partitions]
    assert sorted(owned) == [(service.kafka.bars_topic, 0), (service.kafka.trades_topic, 0)]
    service.register(StandingPut("*", TREND, "change", "q"))
    assert service.alive("engine")
    assert service.alive("consumer")
