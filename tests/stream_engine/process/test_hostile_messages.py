"""Any message may come over the engine's socket: it costs itself, is counted, and the engine stays as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.messages import (
    AnswerChanged,
    Assign,
    Bar,
    Check,
    ConsumerHello,
    ConsumerReport,
    ErrorReply,
    EvaluationsWritten,
    OffsetBound,
    Query,
    Record,
    RecordCounts,
    Refused,
    RegistryHello,
    RegistrySnapshot,
    Restore,
    Revoke,
    SessionDelete,
    Sessions,
    SessionsRequest,
    SnapshotRequest,
    StandingApply,
    StandingDelete,
    StandingPut,
    StandingRequest,
    Status,
    StatusRequest,
    ToEngine,
    Welcome,
    Window,
    WindowBar,
    WindowUnits,
)
from stream_engine.process.intake import MAX_CONSUMERS
from stream_engine.process.service import EngineService
from stream_engine.session.session import IllegalTransition, Session, Source
from stream_engine.util.skipped import MESSAGE_REASONS
from tests.support.batches import batch_of
from tests.support.hostile import NESTED, mutated
from tests.support.strangers_engine import PATIENCE_MS, StrangersEngine

TOPIC = "market.bars"
TREND = "What is the trend?"
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
"""Each example makes an engine of its own."""
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=UNCHECKED)


@pytest.fixture
def make_engine(make_bench: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    numbers = iter(range(1_000_000))

    @contextmanager
    def make(standing_topic: str = "") -> Iterator[StrangersEngine]:
        endpoint = f"ipc://{tmp_path}/{next(numbers)}"
        config = Config(
            kafka=KafkaSettings(standing_topic=standing_topic),
            transport=TransportSettings(endpoint, f"{endpoint}.events"),
        )
        made = StrangersEngine(EngineService(config, lambda emit: make_bench().engine), endpoint)
        try:
            yield made
        finally:
            made.close()

    return make


@pytest.fixture
def engine(make_engine: Callable[..., Any]) -> Iterator[StrangersEngine]:
    with make_engine() as made:
        yield made


def bars(first: int, count: int) -> tuple[Bar, ...]:
    return tuple(Bar(60_000_000 * n, 10.0, 11.0, 9.0, 10.0 + n % 3, 7.0) for n in range(first, first + count))


HELLO = ConsumerHello((TOPIC,))
LAG = {f"{TOPIC}/{number}": 0 for number in range(4)}
REPORT = ConsumerReport(LAG, {"bars_total": 1.0}, {f"{TOPIC}/0": RecordCounts(1, 1)}, None, {TOPIC: 4})
ASSIGN = Assign(TOPIC, 0, 1, 5, 5)
WINDOW = Window(
    session="A",
    offset=4,
    timestamp_ms=1_000,
    swaps=1,
    units=WindowUnits(60, 10.0, 0.5, 7.0, 3),
    bars=tuple(WindowBar(bar, 3, 1_000) for bar in bars(0, 3)),
)
RESTORE = Restore(TOPIC, 0, 1, (WINDOW,))
BATCH = batch_of((Record("A", 5, 1_000, bars(3, 2)), Record("B", 8, -1, bars(0, 1), True)), 4, last=8, consumed=4)
ANSWER = AnswerChanged(
    session="A", query="q", question=TREND, answer="up", previous=None, initial=True, class_="trend", gap=1.0,
    confidence=None, session_version=3, topic=TOPIC,
    partition=0, offset=2, event_time=None,
)  # fmt: skip
FLOW = (HELLO, REPORT, ASSIGN, RESTORE, BATCH)
OTHERS: tuple[ToEngine, ...] = (
    Revoke(TOPIC, 0, 1),
    EvaluationsWritten(TOPIC, 0, 1, 1),
    RegistryHello(),
    RegistrySnapshot(3, (StandingApply(2, "q", StandingPut("A", TREND, "commit", "q")),), (ANSWER,)),
    StandingApply(4, "r", StandingPut("*", TREND, "change", "r"), "token"),
    StandingApply(5, "q", None),
    Query(
        session="A",
        question=TREND,
        path="auto",
        max_age_ms=60_000,
        min_version=5,
        min_offset=OffsetBound(0, 5),
        wait_ms=10,
        patience_ms=1_000,
    ),
    Query("A", "Why?", "full"),
    Check(
        session="A",
        question=TREND,
        question_class="trend",
        session_version=9,
        position=40,
        token=3,
        gap=2.0,
        token_hash=2**63,
    ),
    SessionsRequest("A"),
    SessionsRequest(),
    SessionDelete("A"),
    StandingPut("A*", TREND, "change", "s"),
    StandingRequest("s"),
    StandingDelete("s"),
    SnapshotRequest("A", None),
    StatusRequest(),
)


# --- what an attack did --------------------------------------------------------------------------------


def test_a_partition_below_zero_is_refused(engine: StrangersEngine) -> None:
    engine.hear(HELLO, REPORT)
    for message in (ASSIGN, RESTORE, BATCH):
        changed = msgspec.msgpack.encode(msgspec.structs.replace(message, partition=-1))
        engine.hear(changed)
    assert engine.skipped == {"unreadable": 3}
    assert engine.partitions == []


def test_an_assignment_of_a_strange_topic_does_not_touch_readiness(engine: StrangersEngine) -> None:
    engine.hear(HELLO, REPORT, ASSIGN)
    assert isinstance(engine.status, Status)
    assert engine.status.ready, engine.status.reasons
    (refused,) = engine.hear(Assign("t", 0, 1, 0, 0))
    assert isinstance(refused, Refused)
    assert "kafka.bars_topic = 'market.bars'" in refused.reason
    assert engine.partitions == [Source(TOPIC, 0)]
    assert engine.status.ready
    assert engine.status.counters["messages_skipped_unknown_topic_total"] == 1


def test_a_partition_that_the_topic_does_not_have_is_refused_or_let_go(engine: StrangersEngine) -> None:
    engine.hear(Assign(TOPIC, 77, 1, 0, 0))
    assert engine.partitions == [Source(TOPIC, 77)], "how many there are is not known yet"
    engine.hear(HELLO, REPORT, ASSIGN)
    assert engine.partitions == [Source(TOPIC, 0)]
    (refused,) = engine.hear(Assign(TOPIC, 4, 1, 0, 0))
    assert isinstance(refused, Refused)
    assert "4 partitions" in refused.reason
    assert engine.status.ready
    assert engine.skipped == {"unknown_partition": 2}


def test_a_report_with_few_partitions_takes_none_away(engine: StrangersEngine) -> None:
    engine.hear(HELLO, REPORT, Assign(TOPIC, 3, 1, 0, 0))
    other = engine.another()
    other.send_multipart([b"", msgspec.msgpack.encode(msgspec.structs.replace(REPORT, partitions={TOPIC: 1}))])
    while len(engine.service._consumers.reports) < 2:
        engine.service.turn(10)
    other.close()
    assert engine.partitions == [Source(TOPIC, 3)]


def test_a_generation_of_a_time_to_come_fences_nobody_out(engine: StrangersEngine) -> None:
    minute = 60_000_000
    far = time.time_ns() // 1_000 + 61 * minute
    (refused,) = engine.hear(Assign(TOPIC, 0, far, 0, 0))
    assert isinstance(refused, Refused)
    assert "clocks" in refused.reason
    assert engine.hear(Assign(TOPIC, 0, time.time_ns() // 1_000, 0, 0)) == []
    assert engine.hear(Assign(TOPIC, 0, time.time_ns() // 1_000 + 59 * minute, 0, 0)) == []
    assert engine.partitions == [Source(TOPIC, 0)]


def test_a_batch_that_cannot_be_read_is_refused_rather_than_waited_for(engine: StrangersEngine) -> None:
    engine.hear(HELLO, ASSIGN)
    changed = msgspec.to_builtins(BATCH)
    changed["records"][0][0] = "x" * 5_000
    (refused,) = engine.hear(msgspec.msgpack.encode(changed))
    assert isinstance(refused, Refused)
    assert (refused.topic, refused.partition, refused.generation) == (TOPIC, 0, 1)
    assert "length <= 256" in refused.reason
    assert engine.skipped == {"unreadable": 1}


def test_a_request_that_cannot_be_read_is_answered_at_once(engine: StrangersEngine) -> None:
    (reply,) = engine.hear(msgspec.msgpack.encode(Query("A", "?" * 5_000)), correlation=b"1")
    assert isinstance(reply, ErrorReply)
    assert (reply.status, reply.kind) == (422, "invalid_request_error")
    assert "$.question" in reply.message


def test_a_registry_is_refused_where_the_engine_keeps_the_queries_itself(engine: StrangersEngine) -> None:
    engine.hear(StandingPut("*", TREND, "change", "mine"), correlation=b"1")
    engine.hear(RegistrySnapshot(9, (), ()))
    assert [query.id for query in engine.service.engine.standing.all()] == ["mine"]
    assert engine.skipped == {"no_standing_topic": 1}


def test_consumers_are_bounded(engine: StrangersEngine) -> None:
    engine.service._consumers._heard.update({b"%d" % n: time.monotonic() for n in range(MAX_CONSUMERS)})
    assert engine.hear(HELLO) == []
    assert engine.skipped == {"too_many_consumers": 1}
    engine.service._consumers._heard.clear()
    assert [type(message) for message in engine.hear(HELLO)] == [Welcome]


def test_a_frame_that_is_too_large_takes_no_memory_and_cuts_only_its_sender_off(engine: StrangersEngine) -> None:
    other = engine.another()
    lost = other.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    other.send_multipart([b"", b"\x00" * (64 * 2**20 + 1)])
    cut_off = lost.poll(PATIENCE_MS)
    other.disable_monitor()
    lost.close()
    other.close()
    assert cut_off
    assert engine.hear(SessionsRequest(), correlation=b"1") == [Sessions(())]
    assert engine.skipped == {}, "it was never received"


def test_of_many_frames_only_the_first_are_kept(engine: StrangersEngine) -> None:
    engine.stranger.send_multipart([b"x"] * 50_000)
    assert engine.hear(SessionsRequest(), correlation=b"1") == [Sessions(())]
    assert engine.skipped == {"frames": 1}


# --- a handler that raises -----------------------------------------------------------------------------


def test_a_handler_that_raises_costs_its_message(engine: StrangersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.hear(HELLO, REPORT, ASSIGN, BATCH)

    def fail(*_: Any) -> None:
        raise KeyError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(engine.service.engine.queries, "ask", fail)
        (reply,) = engine.hear(Query("A", TREND), correlation=b"1")
    assert isinstance(reply, ErrorReply)
    assert (reply.status, reply.kind) == (500, "internal_error")
    assert engine.skipped == {"failed": 1}
    assert engine.partitions == [Source(TOPIC, 0)]
    full = Query("A", TREND, "full")
    assert [type(message).__name__ for message in engine.hear(full, correlation=b"2", await_=1)] == ["Answer"]


def test_a_batch_that_raises_half_way_costs_its_partition_which_starts_again(
    engine: StrangersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.hear(HELLO, REPORT, ASSIGN, RESTORE, BATCH, Assign(TOPIC, 1, 1, 0, 0))
    sound = engine.service.engine.ingest._queue

    def fail(owned: Any, waiting: Any, record: Record) -> None:
        sound(owned, waiting, record)
        raise ValueError("a fault of ours")

    batch = msgspec.structs.replace(BATCH, follows=8, last=9, records=(Record("A", 9, 0, bars(9, 1)),))
    with monkeypatch.context() as patched:
        patched.setattr(engine.service.engine.ingest, "_queue", fail)
        (refused,) = engine.hear(batch)
    assert isinstance(refused, Refused)
    assert "a fault of ours" in refused.reason
    assert engine.partitions == [Source(TOPIC, 1)]
    assert engine.service.engine.sessions == {}
    engine.hear(msgspec.structs.replace(ASSIGN, generation=2), msgspec.structs.replace(RESTORE, generation=2))
    assert set(engine.service.engine.sessions) == {"A"}
    engine.service.engine.check_integrity()


@pytest.mark.parametrize("broken", [IllegalTransition("x"), AssertionError("x")])
def test_a_broken_invariant_is_not_hidden(
    engine: StrangersEngine, monkeypatch: pytest.MonkeyPatch, broken: Exception
) -> None:
    def fail(*_: Any) -> None:
        raise broken

    monkeypatch.setattr(engine.service.engine.ingest, "restore", fail)
    engine.hear(HELLO, ASSIGN)
    with pytest.raises(type(broken)):
        engine.hear(RESTORE)


def test_what_a_failure_leaves_broken_elsewhere_ends_the_process(
    engine: StrangersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.hear(HELLO, ASSIGN, RESTORE, BATCH)

    def fail(*_: Any) -> None:
        engine.service.engine.sessions["A"].tokens.append(0)
        raise KeyError("a fault of ours")

    monkeypatch.setattr(engine.service.engine.queries, "ask", fail)
    with pytest.raises(AssertionError, match="token log differs"):
        engine.hear(Query("A", TREND), correlation=b"1")


# --- anything at all -----------------------------------------------------------------------------------


def sound(engine: StrangersEngine) -> None:
    """No handler has failed, the engine is whole, and it does its work."""
    assert "failed" not in engine.skipped, engine.skipped
    engine.service.engine.check_integrity()
    source = Source(TOPIC, 1)
    owned = engine.service.engine.ingest.partitions.get(source)
    generation = 1
    if owned is not None:  # given up: what it has applied, real or not, would come again as a duplicate
        engine.hear(Revoke(TOPIC, 1, owned.generation))
        generation = owned.generation + 1
    engine.hear(REPORT, Assign(TOPIC, 1, generation, 0, 0))
    record = Record("sound", 0, 0, bars(0, 1))
    engine.hear(batch_of((record,), last=0, partition=1, generation=generation))
    assert "sound" in engine.service.engine.sessions
    (reply,) = engine.hear(SessionsRequest("sound"), correlation=b"sound")
    assert isinstance(reply, Sessions)


@FUZZ
@given(st.lists(st.lists(st.binary(max_size=80) | st.just(NESTED), min_size=1, max_size=4), max_size=4))
def test_no_bytes_on_the_socket_touch_the_engine(
    make_engine: Callable[..., Any], garbage: list[list[bytes]]
) -> None:
    with make_engine() as engine:
        for frames in garbage:
            engine.stranger.send_multipart(frames)
        engine.hear()
        assert engine.service._server.malformed == len(garbage)
        sound(engine)


def changed(message: ToEngine) -> st.SearchStrategy[bytes]:
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    return mutated(plain).map(msgspec.msgpack.encode)


any_message = st.sampled_from([*FLOW, *OTHERS]).flatmap(changed)
valid_or_not = st.sampled_from([*FLOW, *OTHERS]).map(msgspec.msgpack.encode) | any_message


@FUZZ
@given(st.lists(valid_or_not, min_size=1, max_size=8), st.sampled_from(["", "stream-engine.standing-queries"]))
def test_no_message_with_a_wrong_part_breaks_the_engine(
    make_engine: Callable[..., Any], messages: list[bytes], standing_topic: str
) -> None:
    with make_engine(standing_topic) as engine:
        engine.hear(*FLOW)
        engine.hear(*messages)
        engine.hear(*messages, correlation=b"1")
        sound(engine)


@FUZZ
@given(
    st.tuples(
        *(st.just(msgspec.msgpack.encode(message)) | changed(message) for message in (ASSIGN, RESTORE, BATCH))
    )
)
def test_no_partition_that_begins_wrong_breaks_the_engine(
    make_engine: Callable[..., Any], flow: list[bytes]
) -> None:
    with make_engine() as engine:
        engine.hear(HELLO, REPORT, *flow, Query("A", TREND), correlation=b"1")
        sound(engine)


def test_sessions_of_this_code_are_whole_after_a_window_from_a_stranger(engine: StrangersEngine) -> None:
    """One that passes every bound, with numbers that nobody has."""
    odd = Window(
        session="A", offset=4, timestamp_ms=2**62, swaps=2**62, units=WindowUnits(2**31 - 1, -1.7e308, 1e-300,
        5e-324, 60_000),
        bars=tuple(WindowBar(Bar(n, 1.7e308, 1.7e308, -1.7e308, 1.7e308, 1.7e308), 0,
        -(2**63)) for n in range(200)),
    )  # fmt: skip
    engine.hear(HELLO, ASSIGN, Restore(TOPIC, 0, 1, (odd,)), BATCH)
    assert isinstance(engine.service.engine.sessions["A"], Session)
    sound(engine)


def test_every_reason_is_a_counter_from_the_start(engine: StrangersEngine) -> None:
    engine.hear(HELLO, Assign("t", 0, 1, 0, 0), RegistryHello())
    assert isinstance(engine.status, Status)
    assert set(engine.skipped) <= set(MESSAGE_REASONS)
    told = {reason: engine.status.counters[f"messages_skipped_{reason}_total"] for reason in MESSAGE_REASONS}
    assert {reason: count for reason, count in told.items() if count} == engine.skipped
    assert engine.status.counters["messages_skipped_total"] == 2
