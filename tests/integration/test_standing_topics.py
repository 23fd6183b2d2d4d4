"""Standing queries on their topic, answers on theirs: real broker, real engine process loop, a model of hashes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import consumers
from consumers.writers.answers import AnswerRecord, AnswerSink
from stream_engine.messages import (
    Assign,
    Bar,
    Done,
    ErrorReply,
    Evaluations,
    Record,
    StandingDelete,
    StandingPut,
    StandingQueries,
)
from tests.support.batches import batch_of
from tests.support.hash_service import (
    PATIENCE_S,
    TREND,
    WAY,
    Crash,
    HashRunner,
    Service,
    bar,
    hash_engine,
    until,
)


def expected_answers(session: str, question: str, count: int) -> list[str]:
    """By session version, from an engine that takes one record at a time and never stops. Version 0 has none."""
    engine = hash_engine()
    engine.assign(Assign("bars", 0, 1, 0, 0))
    answers = [""]
    for offset in range(count):
        record = Record(session, offset, offset, (Bar(*bar(offset), float("nan")),))
        assert engine.ingest.take(batch_of((record,), offset - 1, last=offset, topic="bars")) is None
        engine.run_until_idle()
        runner, tokens = engine._runner, engine.sessions[session].tokens
        assert isinstance(runner, HashRunner)
        logits = runner.predict([*tokens, *engine.builder.query_entry(question)])
        answers.append(engine.builder.answers[logits.top1][1])
    return answers


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
        allowed = [choice["type"] for choice in rule.get("anyOf", [rule])]
        assert any(isinstance(value[name], python[kind]) for kind in allowed), f"{name} is {value[name]!r}"


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
