"""What the client cannot read, in a real broker's log: its partition stops or passes it by name, others go on."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
import kafka.codec
import pytest
from kafka import KafkaProducer

from consumers.health import ailments, stopped_partitions
from consumers.inspection import inspect_kafka
from consumers.recording import read_topic
from stream_engine.localkafka import TemporaryKafka
from stream_engine.util.findings import Level
from tests.support.pipeline import PATIENCE_S, Pipeline

START_S = 1_700_000_000
CRC_AT, ATTRIBUTES_AT, RECORDS_AT = 17, 21, 61
"""Places within a batch of message format 2."""


class NotUtf8(str):
    """A header's name that no kafka-python producer would write otherwise."""

    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfename"


def bar(minute: int) -> dict[str, Any]:
    return {"t": START_S + 60 * minute, "o": 100.0, "h": 101.0, "l": 99.0, "c": 100.0, "v": 5}


def bars(first: int, end: int, key: str = "AAPL") -> list[tuple[str, Any]]:
    return [(key, bar(minute)) for minute in range(first, end)]


@pytest.fixture(scope="module")
def broker() -> Iterator[TemporaryKafka]:
    """Its files are damaged here."""
    with TemporaryKafka() as own:
        yield own


@pytest.fixture
def make(broker: TemporaryKafka, topic_prefix: str, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def build(**settings: Any) -> Pipeline:
        settings.setdefault("health_file", tmp_path / "consumer.health")
        made.append(Pipeline(broker.bootstrap, topic_prefix, tmp_path, {}, settings))
        return made[-1]

    yield build
    for pipeline in made:
        pipeline.close()


class Segment:
    """The newest batch that starts at ``offset`` in a partition's file."""

    def __init__(self, broker: TemporaryKafka, topic: str, partition: int, offset: int) -> None:
        (self._path,) = broker.data_dir.rglob(f"{topic}-{partition}/*.log")
        data, at = self._path.read_bytes(), 0
        while struct.unpack_from(">q", data, at)[0] != offset:
            at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        self._at = at
        self.before = data[at : at + 12 + struct.unpack_from(">i", data, at + 8)[0]]

    def put(self, batch: bytes) -> None:
        assert len(batch) == len(self.before)
        with self._path.open("r+b") as file:
            file.seek(self._at)
            file.write(batch)

    def damaged(self, at: int, new: bytes, sum_right: bool = True) -> bytes:
        """The batch with ``new`` at that place, its checksum as if it had been written so."""
        batch = bytearray(self.before)
        batch[at : at + len(new)] = new
        if sum_right:
            batch[CRC_AT:ATTRIBUTES_AT] = struct.pack(">I", crc32c.crc32c(bytes(batch[ATTRIBUTES_AT:])))
        assert batch != self.before
        return bytes(batch)


def batch_of(pipeline: Pipeline, topic: str, records: list[tuple[str, Any]], **how: Any) -> int:
    """One batch; the offset after its last record."""
    producer = KafkaProducer(bootstrap_servers=pipeline.kafka.bootstrap_servers, linger_ms=10_000, **how)
    sent = [
        producer.send(topic, key=key.encode(), value=json.dumps(value).encode(), partition=0)
        for key, value in records
    ]
    producer.close()
    return int(sent[-1].get(timeout=PATIENCE_S).offset) + 1


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.1)


def letters(pipeline: Pipeline, topic: str) -> list[tuple[int, bytes, bytes, str]]:
    """Offset, key, value and detail of dead letters that are ``unreadable``."""
    found = []
    for record in pipeline.read(topic + pipeline.kafka.dead_letter_suffix):
        named = dict(record.headers)
        assert named["reason"] == b"unreadable"
        found.append((int(named["offset"]), named["key"], record.value, named["detail"].decode()))
    return found


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_kafka_is_read(make: Callable[..., Pipeline], codec: str) -> None:
    pipeline = make(standing_topic="")
    topic = pipeline.kafka.bars_topic
    pipeline.start_engine()
    pipeline.start_consumer()
    end = batch_of(pipeline, topic, bars(0, 40), compression_type=codec)
    pipeline.until_committed(topic, end)
    assert pipeline.counts(topic, 40).applied == 40


@pytest.mark.parametrize("codec", [None, "snappy"])
def test_a_header_not_in_utf_8_costs_its_record_only(make: Callable[..., Pipeline], codec: str | None) -> None:
    pipeline = make(standing_topic="")
    topic = pipeline.kafka.bars_topic
    producer = KafkaProducer(
        bootstrap_servers=pipeline.kafka.bootstrap_servers, linger_ms=10_000, compression_type=codec
    )
    value = b'{"t":%d,"o":1,"h":1,"l":1,"c":1}'
    for minute in range(10):
        headers: list[tuple[str, bytes]] = [("trace", b"\xff\xfe")]  # a value may be any bytes
        if minute in (3, 9):
            headers.append((NotUtf8("name"), b"1"))
        producer.send(topic, key=b"AAPL", value=value % (START_S + 60 * minute), headers=headers, partition=0)
    producer.close()
    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.until_committed(topic, 10)
    counts = pipeline.counts(topic, 10)
    assert (counts.applied, counts.dead_lettered) == (8, 2)
    found = letters(pipeline, topic)
    assert [letter[:3] for letter in found] == [(at, b"AAPL", value % (START_S + 60 * at)) for at in (3, 9)]
    assert all("utf-8" in detail for *_, detail in found)


@pytest.mark.parametrize("fault", ["checksum", "compressed", "records"])
def test_a_batch_that_the_log_holds_damaged_is_passed_with_its_bytes(
    make: Callable[..., Pipeline], broker: TemporaryKafka, fault: str
) -> None:
    pipeline = make(standing_topic="", partitions=2)
    topic = pipeline.kafka.bars_topic
    how = {"compression_type": "gzip"} if fault == "compressed" else {}
    pipeline.put(topic, bars(0, 5))
    damaged_end = batch_of(pipeline, topic, bars(5, 20), **how)
    segment = Segment(broker, topic, 0, 5)
    place = RECORDS_AT + (40 if fault == "checksum" else 20 if fault == "compressed" else 0)
    spoilt = segment.damaged(place, b"\xff" * 9, sum_right=fault != "checksum")
    segment.put(spoilt)
    end = pipeline.put(topic, bars(20, 30))
    pipeline.put(topic, bars(0, 30, "MSFT"), partition=1)
    findings = {finding.subject: finding for finding in inspect_kafka(pipeline.kafka, 10.0)}
    assert findings[f"partition {topic}/0"].level is Level.PROBLEM
    assert "offset 5," in findings[f"partition {topic}/0"].message

    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.until_committed(topic, 30, partition=1)
    pipeline.until_committed(topic, end)
    (letter,) = letters(pipeline, topic)
    assert letter[:3] == (damaged_end - 1, b"", spoilt)
    assert "offsets 5 to 19" in letter[3]
    assert pipeline.counts(topic, 16).applied == 15
    assert pipeline.status().degraded == ()
    assert all(finding.level is not Level.PROBLEM for finding in inspect_kafka(pipeline.kafka, 10.0))
    assert read_topic(pipeline.kafka, topic).refused == {"unreadable": 1}


def test_a_codec_that_is_missing_stops_its_partition_by_name_until_it_is_there(
    make: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(partitions=2)
    topic, health = pipeline.kafka.bars_topic, pipeline.kafka.health_file
    pipeline.put(topic, bars(0, 5))
    end = batch_of(pipeline, topic, bars(5, 40), compression_type="snappy")
    monkeypatch.setattr(kafka.codec, "snappy", None)
    pipeline.start_engine()
    pipeline.start_consumer()
    until(lambda: pipeline.status().degraded != (), "health tells of it")
    pipeline.until_committed(topic, pipeline.put(topic, bars(0, 30, "MSFT"), partition=1), partition=1)
    pipeline.until_committed(topic, 5)
    (told,) = pipeline.status().degraded
    assert told.startswith(f"partition_unreadable: {topic}/0 stands at offset 5,")
    assert "snappy" in told
    assert pipeline.status().gauges["partitions_unreadable"] == 1
    until(lambda: stopped_partitions(health) != [], "the health file tells of it")
    assert "snappy" in stopped_partitions(health)[0]
    assert ailments(health, time.time_ns() // 1_000_000) == []  # a restart would not help
    findings = {finding.subject: finding for finding in inspect_kafka(pipeline.kafka, 10.0)}
    assert findings["codecs"].level is findings[f"partition {topic}/0"].level is Level.PROBLEM
    assert "kafka-python[snappy]" in findings["codecs"].remedy
    assert letters(pipeline, topic) == []

    monkeypatch.undo()
    pipeline.until_committed(topic, end)
    assert pipeline.counts(topic, 40).applied == 40
    until(lambda: pipeline.status().degraded == (), "all is well")
    until(lambda: stopped_partitions(health) == [], "the health file says so")


def test_an_error_of_the_broker_for_one_partition_stops_that_one(
    make: Callable[..., Pipeline], broker: TemporaryKafka
) -> None:
    pipeline = make(standing_topic="", partitions=2)
    topic = pipeline.kafka.bars_topic
    end = batch_of(pipeline, topic, bars(0, 10))
    segment = Segment(broker, topic, 0, 0)
    segment.put(segment.damaged(8, struct.pack(">i", 3), sum_right=False))  # no batch is so short
    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.until_committed(topic, pipeline.put(topic, bars(0, 30, "MSFT"), partition=1), partition=1)
    until(lambda: pipeline.status().degraded != (), "health tells of it")
    assert f"{topic}/0 stands at offset 0," in pipeline.status().degraded[0]
    segment.put(segment.before)
    pipeline.until_committed(topic, end)
    assert pipeline.counts(topic, 10).applied == 10


def test_damage_in_our_own_topics_stops_nobody(make: Callable[..., Pipeline], broker: TemporaryKafka) -> None:
    pipeline = make()
    named = pipeline.kafka
    producer = KafkaProducer(bootstrap_servers=named.bootstrap_servers)
    query = b'{"session": "*", "question": "up?"}'
    broken = [(NotUtf8("x"), b"")]
    producer.send(named.standing_topic, key=b"q", value=query, headers=broken, partition=0).get(PATIENCE_S)
    for topic in (named.standing_topic, named.answers_topic, named.windows_topic):
        producer.send(topic, key=b"a|b", value=b"x" * 100, partition=0).get(timeout=PATIENCE_S)
    producer.close()
    for topic, offset in ((named.standing_topic, 1), (named.answers_topic, 0), (named.windows_topic, 0)):
        segment = Segment(broker, topic, 0, offset)
        segment.put(segment.damaged(len(segment.before) - 50, b"\x00", sum_right=False))
    pipeline.start_engine()
    pipeline.start_consumer()
    pipeline.until_committed(named.bars_topic, pipeline.put(named.bars_topic, bars(0, 30)))
    until(lambda: len(letters(pipeline, named.standing_topic)) == 2, "both are dead letters")
    assert pipeline.status().degraded == ()
