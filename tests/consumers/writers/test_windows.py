"""Windows on their way to the compacted topic: order and confirmation, with a producer that the test plays."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from consumers.kafka.producer import WriteRefused
from consumers.kafka.source import SourcePartition, SourceUnavailable
from consumers.starts import Starts
from consumers.stream import PartitionStream
from consumers.writers import spool
from consumers.writers import windows as module
from consumers.writers.spool import Confirmation
from consumers.writers.windows import StoredWindows, WindowWriter, in_parts, read_windows
from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import Bar, Window, WindowBar, WindowUnits
from stream_engine.util.skipped import Skipped
from tests.support.played_producer import PlayedProducer, renewed

SKIPPED = Skipped(logging.getLogger(__name__))
SOURCE = SourcePartition("market.bars", 1)


def window(session: str, offset: int) -> Window:
    bar = WindowBar(Bar(0, 1.0, 1.0, 1.0, 1.0, float("nan")), offset, 0)
    return Window(
        session=session,
        offset=offset,
        timestamp_ms=0,
        swaps=0,
        units=WindowUnits(60, 1.0, 1.0, 1.0, 1),
        bars=(bar,),
    )


@pytest.fixture
def producer() -> PlayedProducer:
    return PlayedProducer()


@pytest.fixture
def writer(producer: PlayedProducer, monkeypatch: pytest.MonkeyPatch) -> WindowWriter:
    monkeypatch.setattr(spool, "RETRY_AFTER_S", 0.0)
    made = WindowWriter(KafkaSettings(), producer.make)
    for source in (SOURCE, SourcePartition("market.bars", 0), SourcePartition("market.trades", 1)):
        made.acknowledged(source, 100)
    return made


def test_a_window_is_confirmed_once_the_broker_has_it(writer: WindowWriter, producer: PlayedProducer) -> None:
    writer.write(SOURCE, window("A|B", 9), 7, 10)
    assert writer.spool.confirmed() == []
    assert [(sent.topic, sent.key, sent.partition) for sent in producer.sent] == [
        ("stream-engine.windows", b"market.bars|A|B", 1)
    ]
    producer.sent[0].succeed()
    assert writer.spool.confirmed() == [Confirmation("market.bars", 1, 7, 10)]
    assert (writer.spool.confirmed(), writer.spool.pending) == ([], 0)


def slept_on(session: str, offset: int) -> Window:
    return msgspec.structs.replace(window(session, offset), asleep=True)


def test_a_window_to_sleep_on_is_confirmed_with_its_place(writer: WindowWriter, producer: PlayedProducer) -> None:
    writer.write(SOURCE, slept_on("A", 9), 7, 9)
    writer.spool.confirmed()
    producer.sent[0].succeed(31)
    assert writer.spool.confirmed() == [Confirmation("market.bars", 1, 7, 9, session="A", at=31)]


def test_a_deletion_in_its_place_is_nothing_to_sleep_on(writer: WindowWriter, producer: PlayedProducer) -> None:
    writer.write(SOURCE, slept_on("A", 9), 7, 9)
    producer.refuse = MessageSizeTooLargeError()
    writer.spool.confirmed()
    producer.refuse = None
    writer.spool.confirmed()
    assert producer.sent[-1].value is None
    producer.sent[-1].succeed(31)
    assert writer.spool.confirmed() == [Confirmation("market.bars", 1, 7, 9, session="A", at=-1)]


def test_a_deletion_has_no_value(writer: WindowWriter, producer: PlayedProducer) -> None:
    writer.write(SOURCE, Window(session="A", offset=9, timestamp_ms=0, swaps=0, units=None, bars=()), 7, 10)
    writer.spool.confirmed()
    assert [(sent.key, sent.value, sent.partition) for sent in producer.sent] == [(b"market.bars|A", None, 1)]


def test_a_lost_window_is_written_again(writer: WindowWriter, producer: PlayedProducer) -> None:
    writer.write(SOURCE, window("A", 9), 7, 10)
    writer.spool.confirmed()
    producer.sent[0].fail(KafkaTimeoutError())
    assert renewed(writer) == []
    assert len(producer.sent) == 2
    producer.sent[1].succeed()
    assert writer.spool.confirmed() == [Confirmation("market.bars", 1, 7, 10)]


def test_a_window_that_the_topic_may_not_take_ends_the_consumer(
    writer: WindowWriter, producer: PlayedProducer
) -> None:
    writer.write(SOURCE, window("A", 9), 7, 10)
    writer.spool.confirmed()
    producer.sent[0].fail(TopicAuthorizationFailedError())
    with pytest.raises(WriteRefused, match=r"stream-engine.windows cannot be written.*right to write"):
        writer.spool.confirmed()


@pytest.mark.parametrize("newer_first", [False, True])
def test_a_lost_window_never_follows_a_newer_one(
    writer: WindowWriter, producer: PlayedProducer, newer_first: bool
) -> None:
    writer.write(SOURCE, window("A", 9), 7, 10)
    writer.spool.confirmed()
    writer.write(SOURCE, window("A", 19), 7, 20)
    writer.spool.confirmed()
    first, second = producer.sent
    done = []
    if newer_first:
        second.succeed()
        done += writer.spool.confirmed()
    first.fail(KafkaTimeoutError())
    done += renewed(writer)
    if not newer_first:  # it was given up with its producer
        producer.sent[2].succeed()
        done += writer.spool.confirmed()
    assert sorted(done) == [Confirmation("market.bars", 1, 7, 10), Confirmation("market.bars", 1, 7, 20)]
    older, *newer = (sent.value for sent in producer.sent)
    assert older not in newer
    assert (len(set(newer)), writer.spool.pending) == (1, 0)


def test_what_waits_is_replaced_and_counts_for_both(writer: WindowWriter, producer: PlayedProducer) -> None:
    writer.write(SOURCE, window("A", 9), 7, 10)
    writer.write(SOURCE, window("A", 19), 7, 20)
    writer.spool.confirmed()
    (sent,) = producer.sent
    sent.succeed()
    assert {confirmation.offset for confirmation in writer.spool.confirmed()} == {10, 20}


def test_a_partition_that_left_keeps_no_window_waiting(writer: WindowWriter, producer: PlayedProducer) -> None:
    writer.write(SOURCE, window("A", 9), 7, 10)
    writer.write(SourcePartition("market.bars", 0), window("B", 9), 7, 10)
    writer.write(SourcePartition("market.trades", 1), window("C", 9), 7, 10)
    writer.spool.forget(SOURCE)
    writer.spool.confirmed()
    assert [sent.key for sent in producer.sent] == [b"market.bars|B", b"market.trades|C"]


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_window_that_fails_after_its_partition_left_is_not_written_again(
    writer: WindowWriter, producer: PlayedProducer, comes_back: bool
) -> None:
    writer.write(SOURCE, window("A", 9), 7, 10)
    writer.spool.confirmed()
    writer.spool.forget(SOURCE)
    producer.sent[0].fail(KafkaTimeoutError())
    assert renewed(writer) == []
    assert (len(producer.sent), writer.spool.pending) == (1, 0)
    if comes_back:
        writer.write(SOURCE, window("A", 9), 8, 10)
        writer.spool.confirmed()
        producer.sent[1].succeed()
        assert writer.spool.confirmed() == [Confirmation("market.bars", 1, 8, 10)]


def test_a_window_waits_until_what_it_tells_of_is_settled(producer: PlayedProducer) -> None:
    pending: int | None = 9

    class Letters:
        def first_pending(self, topic: str, partition: int) -> int | None:
            return pending if (topic, partition) == SOURCE else None

    letters: Any = Letters()
    writer = WindowWriter(KafkaSettings(), producer.make, letters)
    writer.acknowledged(SOURCE, 8)
    for session, offset in (("A", 9), ("B", 8), ("C", 10)):
        writer.write(SOURCE, window(session, offset), 7, 8)
    written = [b"market.bars|B"]
    assert writer.spool.confirmed() == []
    assert [sent.key for sent in producer.sent] == written
    assert writer.spool.pending == 3
    writer.acknowledged(SOURCE, 9)  # the dead letter of 9 is still on its way
    writer.spool.confirmed()
    assert [sent.key for sent in producer.sent] == written
    pending = None
    writer.spool.confirmed()
    assert [sent.key for sent in producer.sent] == [*written, b"market.bars|A"]
    writer.acknowledged(SOURCE, 10)
    writer.spool.confirmed()
    assert [sent.key for sent in producer.sent] == [*written, b"market.bars|A", b"market.bars|C"]


def test_windows_travel_in_messages_of_a_bounded_size() -> None:
    windows = [window("A", offset) for offset in range(5)]
    assert [len(part) for part in in_parts(windows, 2)] == [2, 2, 1]
    assert in_parts([]) == []


def test_what_an_earlier_topic_left_is_being_deleted_until_the_broker_has_confirmed_it(
    writer: WindowWriter, producer: PlayedProducer
) -> None:
    writer.delete(SOURCE, b"market.bars|A")
    assert writer.deleting(SOURCE)
    assert not writer.deleting(SourcePartition("market.bars", 0))
    writer.spool.confirmed()
    producer.sent[0].fail(KafkaTimeoutError())
    writer.spool.confirmed()
    assert writer.deleting(SOURCE)  # tried again
    renewed(writer)
    producer.sent[1].succeed()
    writer.spool.confirmed()
    assert not writer.deleting(SOURCE)
    assert [sent.value for sent in producer.sent] == [None, None]
    writer.write(SOURCE, window("A", 9), 7, 10)
    assert not writer.deleting(SOURCE)


class OldWindows:
    """What is read of the topic: a window of an earlier topic, as long as it is not deleted."""

    def __init__(self, producer: PlayedProducer) -> None:
        self.producer = producer

    def result(self) -> StoredWindows:
        return StoredWindows(stale=() if self.producer.sent else (b"market.bars|A",))


def test_a_partition_starts_once_windows_of_an_earlier_topic_are_deleted(
    writer: WindowWriter, producer: PlayedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumers.starts.WindowLoad", lambda *_: OldWindows(producer))
    source: Any = SimpleNamespace(
        committed=lambda _: None, bounds=lambda _: (0, 5), seek=lambda _, offset: seeks.append(offset) or True
    )
    seeks: list[int] = []
    sent: list[Any] = []
    starts, stream = Starts(Config(), source, writer, sent.append, SKIPPED), PartitionStream(SOURCE)
    for _ in range(4):
        assert not starts.begin(stream, 0.0)
        writer.spool.confirmed()
    assert (seeks, sent) == ([], [])
    producer.sent[0].succeed()
    writer.spool.confirmed()
    assert [starts.begin(stream, 0.0) for _ in range(2)] == [False, True]  # it looks once more
    assert seeks == [0]
    assert len(producer.sent) == 1


class Reader:
    """A consumer that finds one window at offset 0. ``positions`` are what it says one after another."""

    def __init__(self, positions: list[int | None]) -> None:
        self.positions = positions
        self.closed = False
        self.stops: dict[Any, Any] = {}

    def resume_due(self) -> None:
        pass

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0, 1}

    def assign(self, partitions: Any) -> None:
        pass

    def seek_to_beginning(self, partition: Any) -> None:
        pass

    def end_offsets(self, partitions: Any, timeout_ms: int) -> dict[Any, int]:
        return {partition: 1 if partition.topic == "stream-engine.windows" else 100 for partition in partitions}

    def position(self, partition: Any, timeout_ms: int) -> int | None:
        return self.positions.pop(0)

    def poll(self, timeout_ms: int) -> dict[Any, Any]:
        if self.positions[0] != 1:
            return {}
        return {"polled": [SimpleNamespace(key=b"market.bars|A", value=module._encode(window("A", 9)), offset=0)]}

    def close(self, timeout_ms: int) -> None:
        self.closed = True


def test_a_broker_that_is_slow_to_tell_the_position_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader([None, 0, 1])
    monkeypatch.setattr(module, "CarefulConsumer", lambda **_: reader)
    assert [window.session for window in read_windows(KafkaSettings(), SOURCE, SKIPPED).windows] == ["A"]
    assert reader.closed


def test_windows_without_a_position_are_looked_up_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NO_PROGRESS_S", -1.0)
    reader = Reader([None, None])
    monkeypatch.setattr(module, "CarefulConsumer", lambda **_: reader)
    with pytest.raises(SourceUnavailable):
        read_windows(KafkaSettings(), SOURCE, SKIPPED)
    assert reader.closed


def test_a_reader_that_finds_no_broker_tries_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: Any) -> Any:
        raise KafkaTimeoutError("Failed to bootstrap")

    monkeypatch.setattr(module, "CarefulConsumer", away)
    with pytest.raises(SourceUnavailable, match="bootstrap"):
        read_windows(KafkaSettings(), SOURCE, SKIPPED)
