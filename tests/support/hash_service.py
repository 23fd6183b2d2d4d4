"""A whole service in threads, on a model that answers with a hash of what it read."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from consumers.kafka.topics import ensure_topics
from consumers.process import run_consumer
from consumers.writers.answers import AnswerRecord
from stream_engine.config.config import Config
from stream_engine.config.engine import EngineSettings
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.engine.engine import Engine
from stream_engine.messages import (
    Ack,
    ErrorReply,
    Event,
    FromEngine,
    StandingPut,
    StandingQueries,
    StandingRequest,
    ToEngine,
)
from stream_engine.messages.transport import EngineLink
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Segment
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_gate import build_gate
from stream_engine.process.service import EngineService
from stream_engine.state.engine_state import new_state
from stream_engine.state.live_gate import LiveGate
from tests.support.kv_memory import kv_memory_for

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
                reused = [self.cells[cell] for cell in segment.cells(branch.reused_cell, branch.reused)]
                for cell, token in zip(segment.cells(branch.cell, len(branch.tokens)), branch.tokens, strict=True):
                    self.cells[cell] = token
                logits.append(self.predict([*live, *reused, *branch.tokens]))
            results.append(SegmentResult(tuple(logits)))
        return results

    def predict(self, path: list[int]) -> Distribution:
        number = hashlib.blake2b(repr(path).encode(), digest_size=4).digest()[0]
        return Distribution(self.words[number % len(self.words)], 0, 1.0 + number / 10, 5.0, 6.0, 0.9)

    def copy(self, source: int, target: int, count: int) -> None:
        self.cells[target : target + count] = self.cells[source : source + count]


def hash_engine(emit: Callable[[Event], None] = lambda event: None) -> Engine:
    builder = TokenBuilder.load(EMBEDDED)
    settings = EngineSettings(kv_memory=kv_memory_for(4))
    shape, gate = budget_shape(settings, builder), build_gate(builder)
    return Engine(
        settings,
        builder,
        HashRunner(shape.cells, builder),
        new_state(settings, builder, shape, LiveGate(gate)),
        emit,
    )


class Crash(Exception):
    """The engine process ends here."""


class Service:
    """Engine and consumer of one deployment in threads, and the clients to look at them."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, **kafka: Any) -> None:
        settings: dict[str, Any] = {
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
            until(partial(self._applied, key, number + 1, given_up), f"bar {number} is applied")
        return number + 1

    def _applied(self, key: str, version: int, given_up: Callable[[], bool]) -> bool:
        return self.version(key) >= version or given_up()

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
        answers: list[AnswerRecord] = until(
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
