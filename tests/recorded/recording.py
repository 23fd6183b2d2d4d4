"""A recording of what one version of the service wrote: its files, and the topics as they lay on the broker."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import UnknownTopicOrPartitionError

from tests.recorded.house import EMBEDDED

RECORDINGS = Path(__file__).parent
RECORDS, COMMITTED, STATE = "records.jsonl.gz", "committed.json", "state.json"
RETIRED = {"STREAM_ENGINE_ENGINE_MAX_SESSIONS": "engine.kv_memory"}
"""Settings of before, and what this version says takes their place."""
RISK, CALIBRATION, BOARD = "risk.json", "calibration.json", "ready.board.xz"
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """A record as it lay in its topic; ``timestamp`` in milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    def line(self) -> str:
        fields = {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "key": _text(self.key),
            "value": _text(self.value),
            "headers": [[name, _text(value)] for name, value in self.headers],
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def read(cls, line: str) -> WrittenRecord:
        fields = json.loads(line)
        fields["key"], fields["value"] = _data(fields["key"]), _data(fields["value"])
        fields["headers"] = tuple((name, _data(value)) for name, value in fields["headers"])
        return cls(**fields)


def _text(data: bytes | None) -> Any:
    """Text as it is, anything else in base 64."""
    try:
        return data if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def _data(text: Any) -> bytes | None:
    if isinstance(text, dict):
        return base64.b64decode(text["base64"])
    return text if text is None else text.encode()


@dataclass(frozen=True, slots=True)
class Recording:
    """The folder of one recording."""

    folder: Path

    def __str__(self) -> str:
        return self.folder.name

    @classmethod
    def all(cls) -> list[Recording]:
        return [cls(path.parent) for path in sorted(RECORDINGS.glob(f"*/{RECORDS}"))]

    def records(self, topic: str | None = None) -> list[WrittenRecord]:
        """In the order of their offsets, partition after partition."""
        lines = gzip.decompress((self.folder / RECORDS).read_bytes()).decode().splitlines()
        found = [WrittenRecord.read(line) for line in lines]
        return [record for record in found if topic in (None, record.topic)]

    def write_records(self, records: Iterable[WrittenRecord]) -> None:
        text = "".join(f"{record.line()}\n" for record in records)
        (self.folder / RECORDS).write_bytes(gzip.compress(text.encode(), mtime=0))

    @property
    def settings(self) -> dict[str, str]:
        """As the service was configured, without what this version refuses by name."""
        recorded: dict[str, str] = self.state["settings"]
        return {name: value for name, value in recorded.items() if name not in RETIRED}

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_bytes())

    def write_json(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def board(self) -> bytes:
        return lzma.decompress((self.folder / BOARD).read_bytes())

    def write_board(self, content: bytes) -> None:
        (self.folder / BOARD).write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))

    @property
    def state(self) -> Any:
        """What the service said of itself before it was stopped, and the settings that it had."""
        return self.json(STATE)

    @property
    def of_todays_model(self) -> bool:
        """By the bytes of its files. Another model says other things, and another text around them makes other
        tokens: what was recorded of both then does not apply."""
        return bool(self.state["model_files"] == model_files())


def model_files() -> dict[str, str]:
    """SHA-256 of the files that decide what the embedded model reads and says."""
    names = "config.json", "model.safetensors", "profile.json", "tokenizer.json"
    return {name: hashlib.sha256((EMBEDDED / name).read_bytes()).hexdigest() for name in names}


def read_topics(bootstrap: str, topics: Sequence[str]) -> list[WrittenRecord]:
    """All that lies in the topics now."""
    reader = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        partitions = [
            TopicPartition(topic, number)
            for topic in topics
            for number in sorted(reader.partitions_for_topic(topic) or ())
        ]
        reader.assign(partitions)
        reader.seek_to_beginning()
        ends = reader.end_offsets(partitions)
        found: list[WrittenRecord] = []
        while any(reader.position(partition) < end for partition, end in ends.items()):
            for records in reader.poll(200).values():
                found += [
                    WrittenRecord(
                        record.topic,
                        record.partition,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        tuple(record.headers),
                    )
                    for record in records
                ]
    finally:
        reader.close()
    return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))


def read_committed(bootstrap: str, group: str, partitions: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """The group's committed offsets with their metadata, of the partitions that have one."""
    viewer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    try:
        found = []
        for topic, number in partitions:
            point = viewer.committed(TopicPartition(topic, number), metadata=True, timeout_ms=10_000)
            if point is not None:
                found.append(
                    {"topic": topic, "partition": number, "offset": point.offset, "metadata": point.metadata}
                )
        return found
    finally:
        viewer.close()


def remove_topics(bootstrap: str, topics: Iterable[str]) -> None:
    """Those that are there; returns once the broker has none of them."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        for topic in topics:
            if topic in admin.list_topics():
                try:
                    admin.delete_topics([topic])
                except UnknownTopicOrPartitionError:
                    continue
    finally:
        admin.close()


def replay(recording: Recording, bootstrap: str) -> None:
    """Write everything into topics that exist and are empty: the same partitions, offsets, times and headers; then
    the group's offsets. Raises AssertionError where an offset comes out otherwise."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, max_in_flight_requests_per_connection=1)
    sent = [
        (
            record,
            producer.send(
                record.topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp,
            ),
        )
        for record in recording.records()
    ]
    for record, future in sent:
        offset = future.get(PATIENCE_S).offset
        assert offset == record.offset, f"{record.topic}/{record.partition}: {offset}, recorded {record.offset}"
    producer.close()
    group = KafkaConsumer(bootstrap_servers=bootstrap, group_id=recording.state["group"], enable_auto_commit=False)
    points = {
        TopicPartition(point["topic"], point["partition"]): OffsetAndMetadata(
            point["offset"], point["metadata"], -1
        )
        for point in recording.json(COMMITTED)
    }
    group.assign(list(points))
    group.commit(points)
    group.close()
