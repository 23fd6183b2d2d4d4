"""Standing queries on their topic, answers on theirs: real broker, real engine process loop, a model of hashes."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import consumers
from consumers.process import run_consumer
from consumers.sink import AnswerRecord, AnswerSink
from consumers.topics import ensure_topics
from stream_engine.assemble import budget_shape, build_gate
from stream_engine.config import Config, EngineSettings, KafkaSettings, TransportSettings
from stream_engine.engine import Engine
from stream_engine.messages import (
    Ack,
    Assign,
    Bar,
    Batch,
    Done,
    ErrorReply,
    Evaluations,
    Event,
    FromEngine,
    Record,
    StandingDelete,
    StandingPut,
    StandingQueries,
    StandingRequest,
    ToEngine,
)
from stream_engine.model.builder import TokenBuilder
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.runner import Logits, SegmentResult
from stream_engine.model.step import Segment
from stream_engine.publish import Publication
from stream_engine.service import EngineService
from stream_engine.transport import EngineLink

PATIENCE_S = 60.0
TREND = "What is the trend?"
WAY = "Which way is it going?"
START_US = 1_700_000_000_000_000


class HashRunner:
    """Answers with a word that the whole token path decides: mostly another one after each bar."""

    def __init__(self, cells: int, builder: TokenBuilder) -> None:
        self.cells = [0] * cells
        self.cells[-len(builder.prefix) :] = builder.prefix
        self.words = sorted(token for token, (kind, _) in builder.answers.items() if kind == "trend")

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        results = []
        for segment in segments:
            base, length = segment.base, segment.length
            self.cells[base + length : base + segment.live_end] = segment.append
            live = self.cells[base : base + segment.live_end]
            logits = []
            for branch in segment.branches:
                reused = self.cells[base + branch.reused_cell : base + branch.reused_cell + branch.reused]
                start = base + branch.cell
                self.cells[start : start + len(branch.tokens)] = branch.tokens
                logits.append(self.predict([*live, *reused, *branch.tokens]))
            results.append(SegmentResult(tuple(logits)))
        return results

    def predict(self, path: list[int]) -> Logits:
        number = hashlib.blake2b(repr(path).encode(), digest_size=4).digest()[0]
        return Logits(self.words[number % len(self.words)], 0, 1.0 + number / 10, 5.0, 6.0, 0.9)

    def copy(self, source: int, target: int, count: int) -> None:
        self.cells[target : target + count] = self.cells[source : source + count]


def hash_engine(emit: Callable[[Event], None] = lambda event: None) -> Engine:
    builder = TokenBuilder.load(EMBEDDED)
    settings = EngineSettings(max_sessions=4)
    shape, gate = budget_shape(settings, builder), build_gate(builder)
    publication = Publication(None, builder.profile, gate)
    return Engine(settings, builder, HashRunner(shape.cells, builder), shape, gate, publication, emit)


class Crash(Exception):
    """The engine process ends here."""


class Service:
    """Engine and consumer of one deployment in threads, and the clients to look at them."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, **kafka: Any) -> None:
        settings = {
            "bars_topic": prefix + "bars",
            "trades_topic": prefix + "trades",
            "windows_topic": prefix + "windows",
            "standing_topic": prefix + "standing",
            "answers_topic": prefix + "answers",
            "partitions": 1,
        }
        self.kafka = KafkaSettings(bootstrap_servers=bootstrap, group_id=prefix + "group", **settings | kafka)
        transport = TransportSettings(f"ipc://{folder}/engine.sock", f"ipc://{folder}/events.sock")
        self.config = Config(kafka=self.kafka, transport=transport)
        ensure_topics(self.kafka)
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
        self._threads: dict[str, tuple[threading.Event, threading.Thread]] = {}
        self._api = EngineLink(transport)

    def start_engine(self, crash_at: int | None = None) -> None:
        """With ``crash_at`` the engine ends in place of the acknowledgement of that offset."""
        service = EngineService(self.config, hash_engine)
        self._engine = service.engine
        send = service._server.send

        def sending(peer: Any, message: FromEngine) -> None:
            if isinstance(message, Ack) and crash_at is not None and message.last >= crash_at:
                raise Crash
            send(peer, message)

        service._server.send = sending  # type: ignore[method-assign]

        def run(stop: threading.Event) -> None:
            with suppress(Crash):
                service.run(stop)

        self._start("engine", run)

    def start_consumer(self) -> None:
        def run(stop: threading.Event) -> None:
            with suppress(Crash):
                run_consumer(self.config, stop)

        self._start("consumer", run)

    def _start(self, name: str, run: Callable[[threading.Event], None]) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=run, args=(stop,), name=name)
        thread.start()
        self._threads[name] = stop, thread

    def stop(self, name: str) -> None:
        stop, thread = self._threads.pop(name)
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def crashed(self) -> None:
        _, thread = self._threads.pop("engine")
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the engine was to end by itself"

    def close(self) -> None:
        for name in ("consumer", "engine"):
            if name in self._threads:
                self.stop(name)
        self.producer.close()
        self._api.close()

    # --- what people do -------------------------------------------------------------------------------

    def ask(self, message: ToEngine) -> FromEngine:
        self._api.send(message)
        replies = self._api.drain(int(PATIENCE_S * 1000))
        assert len(replies) == 1, replies
        return replies[0]

    def register(self, message: StandingPut) -> FromEngine:
        """Again until the registry is there."""
        deadline = time.monotonic() + PATIENCE_S
        while isinstance(reply := self.ask(message), ErrorReply) and reply.status == 503:
            assert time.monotonic() < deadline, reply
            time.sleep(0.2)
        return reply

    def registered(self) -> set[str] | None:
        """None while the engine does not know."""
        reply = self.ask(StandingRequest())
        return {query.id for query in reply.queries} if isinstance(reply, StandingQueries) else None

    def version(self, session: str) -> int:
        known = self._engine.sessions.get(session)
        return known.version if known is not None else 0

    def one_by_one(self, key: str, numbers: Iterable[int], given_up: Callable[[], bool]) -> int:
        """Each bar once the one before is applied, until ``given_up``; the number of the bar after the last."""
        for number in numbers:
            if given_up():
                return number
            self.bars(key, range(number, number + 1))
            until(lambda after=number + 1: self.version(key) >= after or given_up(), f"bar {number} is applied")
        return number + 1

    def alive(self, name: str) -> bool:
        return self._threads[name][1].is_alive()

    def bars(self, key: str, numbers: range) -> None:
        for number in numbers:
            value = json.dumps(dict(zip("tohlc", bar(number), strict=True))).encode()
            self.producer.send(self.kafka.bars_topic, key=key.encode(), value=value, partition=0)
        self.producer.flush(PATIENCE_S)

    def standing(self, key: str, value: Any) -> int:
        data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        sent = self.producer.send(self.kafka.standing_topic, key=key.encode(), value=data)
        return int(sent.get(PATIENCE_S).offset)

    def records(self, topic: str) -> list[Any]:
        """Everything that a topic holds now."""
        reader = KafkaConsumer(bootstrap_servers=self.kafka.bootstrap_servers, enable_auto_commit=False)
        try:
            partitions = [TopicPartition(topic, number) for number in reader.partitions_for_topic(topic) or ()]
            reader.assign(partitions)
            reader.seek_to_beginning()
            ends = reader.end_offsets(partitions)
            found: list[Any] = []
            while any(reader.position(tp) < end for tp, end in ends.items()):
                found += [record for records in reader.poll(200).values() for record in records]
            return found
        finally:
            reader.close()

    def answers(self, session: str, query: str) -> list[AnswerRecord]:
        key = f"{session}|{query}".encode()
        values = [record.value for record in self.records(self.kafka.answers_topic) if record.key == key]
        return [msgspec.json.decode(value, type=AnswerRecord) for value in values if value is not None]

    def history(self, session: str, query: str, expected: Sequence[str]) -> list[AnswerRecord]:
        """The answers of a query once the last one is that of the last version; each change once, in order."""
        until(lambda: self.version(session) == len(expected) - 1, f"{session} has {len(expected) - 1} bars")
        answers = until(
            lambda: (found := self.answers(session, query)) and found[-1].answer == expected[-1] and found,
            f"{session}: {expected[-1]}",
        )
        assert [answer.answer for answer in answers] == [expected[answer.session_version] for answer in answers]
        versions = [answer.session_version for answer in answers]
        assert versions == sorted(set(versions)), "a version was told twice, or went back"
        assert [answer.previous for answer in answers] == [None, *(answer.answer for answer in answers[:-1])]
        assert [answer.initial for answer in answers] == [True] + [False] * (len(answers) - 1)
        assert all(answer.answer != answer.previous for answer in answers), "an unchanged answer was told"
        return answers


def expected_answers(session: str, question: str, count: int) -> list[str]:
    """By session version, from an engine that takes one record at a time and never stops. Version 0 has none."""
    engine = hash_engine()
    engine.ingest.assign(Assign("bars", 0, 1, 0, 0))
    answers = [""]
    for offset in range(count):
        record = Record(session, offset, offset, (Bar(*bar(offset), float("nan")),))
        assert engine.ingest.take(Batch("bars", 0, 1, offset - 1, offset, 1, (record,))) is None
        engine.run_until_idle()
        runner, tokens = engine._runner, engine.sessions[session].tokens
        assert isinstance(runner, HashRunner)
        logits = runner.predict([*tokens, *engine.builder.query_entry(question)])
        answers.append(engine.builder.answers[logits.top1][1])
    return answers


def bar(number: int) -> tuple[int, float, float, float, float]:
    """Time in microseconds, open, high, low, close."""
    close = 100 + (number * 7 % 11) * 0.5
    return START_US + number * 60_000_000, close, close + 1, close - 1, close


def until(what: Callable[[], Any], why: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited in vain: {why}"
        time.sleep(0.1)
    return found


@pytest.fixture
def make_service(kafka: Any, topic_prefix: str, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(**settings: Any) -> Service:
        made.append(Service(kafka.bootstrap, topic_prefix, tmp_path, **settings))
        return made[-1]

    yield make
    for service in made:
        service.close()


def test_a_record_on_the_topic_is_asked_of_later_sessions_and_answered_on_a_topic(
    make_service: Callable[..., Service],
) -> None:
    service = make_service()
    service.standing("way", {"session": "EUR*", "question": WAY})
    service.start_engine()
    service.start_consumer()
    until(lambda: service.registered() == {"way"}, "the engine has the query")

    service.bars("EURUSD=X", range(40))
    service.bars("AAPL", range(1))

    answers = service.history("EURUSD=X", "way", expected_answers("EURUSD=X", WAY, 40))
    newest = answers[-1]
    assert (newest.question, newest.class_, newest.topic) == (WAY, "trend", service.kafka.bars_topic)
    assert (newest.partition, newest.offset) == (0, newest.session_version - 1)
    assert newest.event_time is not None
    service.standing("all", {"session": "*", "question": TREND})
    until(lambda: service.answers("AAPL", "all"), "a query that comes later is asked of live sessions")
    records = service.records(service.kafka.answers_topic)
    assert {record.key for record in records} == {b"EURUSD=X|way", b"EURUSD=X|all", b"AAPL|all"}
    schema = json.loads((Path(consumers.__file__).parent / "schemas" / "answer.schema.json").read_text())
    for record in records:
        jsonschema_check(json.loads(record.value), schema)


def jsonschema_check(value: dict[str, Any], schema: dict[str, Any]) -> None:
    """What the schema of an answer uses of JSON Schema: required properties, none besides, and their types."""
    python = {"string": str, "number": (int, float), "integer": int, "boolean": bool, "null": type(None)}
    kind = schema["$defs"]["AnswerRecord"]
    assert set(value) == set(kind["required"]) == set(kind["properties"])
    for name, rule in kind["properties"].items():
        allowed = [one["type"] for one in rule.get("anyOf", [rule])]
        assert any(isinstance(value[name], python[one]) for one in allowed), f"{name} is {value[name]!r}"


def test_what_the_api_registers_survives_restarts_until_it_is_deleted(
    make_service: Callable[..., Service],
) -> None:
    service = make_service()
    service.start_engine()
    unavailable = service.ask(StandingPut("*", TREND, id="trend"))
    assert isinstance(unavailable, ErrorReply)
    assert (unavailable.status, unavailable.kind) == (503, "registry_unavailable")
    service.start_consumer()

    made = service.register(StandingPut("*", f"  {TREND} ", "change", "trend"))
    assert isinstance(made, StandingQueries)
    assert (made.queries[0].id, made.queries[0].question) == ("trend", TREND)
    refused = service.ask(StandingPut("*", "Will it rain?"))
    assert isinstance(refused, ErrorReply)
    assert refused.status == 422
    service.bars("AAPL", range(12))
    expected = expected_answers("AAPL", TREND, 16)
    before = service.history("AAPL", "trend", expected[:13])

    service.stop("engine")
    service.start_engine()
    until(lambda: service.registered() == {"trend"}, "the new engine has the query")
    service.stop("consumer")
    service.start_consumer()
    service.stop("engine")
    service.start_engine()
    service.bars("AAPL", range(12, 16))
    after = service.history("AAPL", "trend", expected)
    assert after[: len(before)] == before

    assert isinstance(service.ask(StandingDelete("trend")), Done)
    assert service.registered() == set()
    newest = service.records(service.kafka.standing_topic)[-1]
    assert (newest.key, newest.value) == (b"trend", None)
    until(lambda: service.records(service.kafka.answers_topic)[-1].value is None, "its answer is deleted, too")
    missing = service.ask(StandingDelete("trend"))
    assert isinstance(missing, ErrorReply)
    assert missing.status == 404


def test_a_malformed_record_is_dead_lettered_once(make_service: Callable[..., Service]) -> None:
    service = make_service()
    service.start_engine()
    service.start_consumer()
    service.standing("good", {"session": "*", "question": TREND})
    service.standing("spoilt", {"session": "*", "question": TREND})
    until(lambda: service.registered() == {"good", "spoilt"}, "both are registered")

    reasons = {
        service.standing("spoilt", b"{"): "not_json",
        service.standing("typo", {"session": "*", "qestion": TREND}): "not_a_standing_query",
        service.standing("rain", {"session": "*", "question": "Will it rain?"}): "question_not_supported",
        service.standing("a|b", {"session": "*", "question": TREND}): "key_invalid",
    }
    service.standing("last", {"session": "*", "question": TREND})
    until(lambda: service.registered() == {"good", "last"}, "the newest record of an id counts")
    letters = service.kafka.standing_topic + service.kafka.dead_letter_suffix
    until(lambda: len(service.records(letters)) == len(reasons), "each has its dead letter")
    for letter in service.records(letters):
        headers = dict(letter.headers)
        assert headers["topic"].decode() == service.kafka.standing_topic
        assert headers["reason"].decode() == reasons[int(headers["offset"])]
        assert headers["detail"]

    service.stop("consumer")
    service.stop("engine")
    service.start_engine()
    service.start_consumer()
    until(lambda: service.registered() == {"good", "last"}, "a restart reads the same")
    service.standing("again", {"session": "*", "question": TREND})
    until(lambda: service.registered() == {"good", "last", "again"}, "the topic is followed")
    assert len(service.records(letters)) == len(reasons)


def test_an_engine_that_dies_before_its_acknowledgement_tells_each_change_once(
    make_service: Callable[..., Service],
) -> None:
    service = make_service()
    service.standing("trend", {"session": "*", "question": TREND})
    expected = expected_answers("AAPL", TREND, 80)
    service.start_engine(crash_at=8)
    service.start_consumer()
    for first in range(0, 80, 16):
        crashed_before = service.one_by_one("AAPL", range(first, first + 16), lambda: not service.alive("engine"))
        service.bars("AAPL", range(crashed_before, first + 16))
        service.crashed()
        service.start_engine(crash_at=first + 24 if first < 64 else None)
    answers = service.history("AAPL", "trend", expected)
    assert len(answers) > 15


def test_a_consumer_that_dies_with_answers_in_its_hands_leaves_none_out(
    make_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service()
    service.standing("trend", {"session": "*", "question": TREND})
    service.start_engine()
    service.start_consumer()
    service.bars("AAPL", range(5))
    expected = expected_answers("AAPL", TREND, 60)
    service.history("AAPL", "trend", expected[:6])

    take, died = AnswerSink.take, threading.Event()

    def dying(sink: AnswerSink, message: Evaluations) -> list[int]:
        if died.is_set():
            return take(sink, message)
        died.set()
        raise Crash

    monkeypatch.setattr(AnswerSink, "take", dying)
    number = service.one_by_one("AAPL", range(5, 30), died.is_set)
    assert died.wait(PATIENCE_S)
    service.stop("consumer")
    service.start_consumer()
    service.history("AAPL", "trend", expected[: number + 1])
    service.bars("AAPL", range(number, 60))
    service.history("AAPL", "trend", expected)


def test_answers_of_an_earlier_topic_of_that_name_silence_nothing(make_service: Callable[..., Service]) -> None:
    service = make_service()
    old = AnswerRecord(
        "AAPL", "trend", TREND, "up", None, True, class_="trend", gap=1.0, confidence=None, session_version=1000,
        topic=service.kafka.bars_topic, partition=0, offset=999, event_time=None,
    )  # fmt: skip
    service.producer.send(service.kafka.answers_topic, key=b"AAPL|trend", value=msgspec.json.encode(old)).get(60)
    service.standing("trend", {"session": "*", "question": TREND})
    service.start_engine()
    service.start_consumer()
    service.bars("AAPL", range(3))
    until(lambda: service.answers("AAPL", "trend")[1:], "the session is evaluated")
    assert service.answers("AAPL", "trend")[1].initial
