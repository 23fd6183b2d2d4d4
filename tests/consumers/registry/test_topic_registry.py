"""What the registry makes of records and of failures; Kafka and the engine are played."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kafka.errors import KafkaTimeoutError

from consumers.kafka.source import SourcePartition
from consumers.registry import topic_registry as module
from consumers.registry.topic_registry import TopicRegistry
from consumers.writers.answers import AnswerRecord
from stream_engine.config.config import Config
from stream_engine.messages import (
    AnswerChanged,
    FromEngine,
    RegistryApplied,
    RegistrySnapshot,
    StandingApply,
    StandingPut,
    StandingWrite,
    ToEngine,
    Welcome,
)
from stream_engine.standing.answer_book import AnswerBook
from stream_engine.util.skipped import Skipped
from tests.support.played_producer import PlayedProducer, PlayedSpool

CONFIG = Config()
KAFKA = CONFIG.kafka


class Tail:
    """Records of the topics, as a test puts them into ``records``; all partitions end at 10."""

    def __init__(self, *_: Any) -> None:
        self.partitions = [SourcePartition(KAFKA.standing_topic, 0), SourcePartition(KAFKA.answers_topic, 0)]
        self.records: list[Any] = []

    def poll(self, _: int) -> list[Any]:
        records, self.records = self.records, []
        return records

    def stopped(self) -> dict[SourcePartition, str]:
        return {}

    def ends(self, partitions: Any) -> dict[SourcePartition, int]:
        return dict.fromkeys(partitions, 10)

    def reached(self, _: Any) -> bool:
        return True

    def partitions_of(self, topic: str) -> list[SourcePartition]:
        return [SourcePartition(topic, 0)]


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tail, self.producers = Tail(), list[PlayedProducer]()
        self.heard, self.said = list[FromEngine](), list[ToEngine]()
        monkeypatch.setattr(module, "TopicTail", lambda *_: self.tail)
        monkeypatch.setattr(module, "open_producer", self._connect)
        letters = SimpleNamespace(spool=PlayedSpool(), send=lambda *_: None)
        monkeypatch.setattr(module, "DeadLetterWriter", lambda *_, **__: letters)
        link = SimpleNamespace(drain=self._drain, send=self.said.append)
        monkeypatch.setattr(module, "EngineLink", lambda *_: link)
        self.book = AnswerBook()
        self.registry = TopicRegistry(CONFIG, self.book, Skipped(logging.getLogger(__name__)))

    def _connect(self, *_: Any) -> PlayedProducer:
        self.producers.append(PlayedProducer())
        return self.producers[-1]

    def _drain(self) -> list[FromEngine]:
        heard, self.heard[:] = list(self.heard), []
        return heard

    def turn(self, *messages: FromEngine) -> None:
        self.heard += messages
        self.registry.turn()

    def snapshots(self) -> list[RegistrySnapshot]:
        return [message for message in self.said if isinstance(message, RegistrySnapshot)]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def answer(**changed: Any) -> Any:
    """A record of the answers topic."""
    made = AnswerRecord(
        "AAPL", "q", "?", "up", None, True, class_="trend", gap=1.0, confidence=None, session_version=5,
        topic=KAFKA.bars_topic, partition=0, offset=4, event_time=None,
    )  # fmt: skip
    value = msgspec.json.encode(msgspec.structs.replace(made, **changed))
    return SimpleNamespace(topic=KAFKA.answers_topic, partition=0, offset=0, key=b"AAPL|q", value=value)


@pytest.mark.parametrize("missing", ["topic", "partition", "offset"])
def test_an_answer_that_names_no_record_harms_no_snapshot(bench: Bench, missing: str) -> None:
    bench.tail.records = [answer(), answer(session_version=6, **{missing: None})]
    bench.turn(Welcome("boot-1", 0))
    (snapshot,) = bench.snapshots()
    assert [answer.session_version for answer in snapshot.answers] == [5]


def test_an_engine_on_another_connection_gets_everything_again(bench: Bench) -> None:
    bench.turn(Welcome("boot-1", 0, b"1"))
    bench.turn(RegistryApplied("boot-1", -1, True))
    assert bench.registry.ready_for("boot-1", 0.0)
    bench.turn(Welcome("boot-1", 0, b"1"))
    assert len(bench.snapshots()) == 1
    bench.tail.records = [
        SimpleNamespace(
            topic=KAFKA.standing_topic, partition=0, offset=0, timestamp=0, key=b"q", headers=[],
            value=b'{"session":"*","question":"What is the trend?"}',
        )
    ]  # fmt: skip
    bench.turn()
    assert [message.id for message in bench.said if isinstance(message, StandingApply)] == ["q"]
    bench.turn(Welcome("boot-1", 0, b"2"))  # that one was lost, perhaps
    assert not bench.registry.ready_for("boot-1", 0.0)
    assert [record.id for record in bench.snapshots()[-1].queries] == ["q"]


def test_a_write_that_failed_fails_no_later_one(bench: Bench) -> None:
    write = StandingWrite("token", "q", StandingPut("*", "What is the trend?", "change", "q"))
    bench.turn(write)
    bench.producers[0].sent[0].fail(KafkaTimeoutError("expired"))
    bench.turn()
    while not bench.registry._producer.ready():
        pass
    bench.turn(write)
    assert [len(producer.sent) for producer in bench.producers] == [1, 1]


def test_a_snapshot_comes_in_messages_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [StandingApply(n, f"q{n}", StandingPut("*", "?" * 900, "change", f"q{n}")) for n in range(10)]
    answers = [
        AnswerChanged(
            session=f"S{n}", query="q1", question="?", answer="up", previous=None, initial=True,
            class_="trend", gap=1.0, confidence=None, session_version=5,
            topic=KAFKA.bars_topic, partition=0, offset=4, event_time=None,
        )
        for n in range(30)
    ]  # fmt: skip
    parts = module.snapshot_parts(7, queries, answers, most=2_000)
    sizes = [len(msgspec.msgpack.encode(part)) for part in parts]
    assert len(parts) > 5
    assert max(sizes) < 2_500
    assert [(part.offset, part.part, part.more) for part in parts] == [
        (7, n, n < len(parts) - 1) for n in range(len(parts))
    ]
    assert [item for part in parts for item in part.queries] == queries
    assert [item for part in parts for item in part.answers] == answers
    assert module.snapshot_parts(7, [], []) == [RegistrySnapshot(7, (), ())]
    monkeypatch.setattr(module, "MAX_SNAPSHOT_PARTS", 12)
    short = module.snapshot_parts(7, queries, answers, most=2_000)
    assert [item for part in short for item in part.queries] == queries
    assert (len(short), short[-1].more) == (12, False)
    assert 0 < sum(len(part.answers) for part in short) < len(answers)
