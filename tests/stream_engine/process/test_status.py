"""What the engine tells about itself: readiness with reasons, sessions, counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stream_engine.messages import (
    Assign,
    ConsumerReport,
    Query,
    Record,
    RecordCounts,
    SessionsRequest,
    StandingPut,
)
from stream_engine.messages.metric_help import ENGINE_COUNTERS, ENGINE_GAUGES
from stream_engine.process.status import session_info, session_infos, status
from tests.support.batches import batch_of
from tests.support.board_bench import Bench as BoardBench

TOPIC = "market.bars"
TREND = "What is the trend?"


@pytest.fixture
def bench(make_bench: Callable[..., Any], make_record: Callable[..., Record]) -> Any:
    made = make_bench(sessions=2)
    made.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    records = tuple(make_record("^GSPC", offset) for offset in range(40))
    made.engine.ingest.take(batch_of(records, last=39, consumed=41))
    made.engine.run_until_idle()
    made.engine.ingest.settle()
    return made


def told(bench: Any, consumers: int = 1, reports: Mapping[bytes, ConsumerReport] | None = None) -> Any:
    skipped = {"unreadable": 3, "unknown_topic": 2}
    return status(bench.engine, time.monotonic(), consumers, reports or {}, 3, skipped)


def test_ready_without_a_reason(bench: Any) -> None:
    now = told(bench)
    assert (now.ready, now.reasons) == (True, ())
    assert now.boot_id == bench.engine.boot_id
    (owned,) = now.partitions
    assert (owned.topic, owned.partition, owned.applied, owned.state, owned.sessions) == (TOPIC, 0, 40, "LIVE", 1)
    assert now.counters["messages_malformed_total"] == 3
    assert now.counters["messages_skipped_total"] == 5
    assert now.counters["messages_skipped_unknown_topic_total"] == 2
    assert now.counters["records_total"] == 41
    assert now.gauges["sessions"] == now.gauges["sessions_resident"] == 1
    shape = bench.shape
    assert now.gauges["cells_used"] == shape.slab + shape.bench + shape.prefix
    assert now.gauges["kv_bytes_total"] == shape.cells * shape.cell_bytes
    assert now.gauges["sessions_fit"] == 2


def test_an_idle_engine_stays_ready(bench: Any) -> None:
    bench.engine.scheduler._clock = lambda: time.monotonic() + 86_400
    assert told(bench).ready


def test_no_consumer_and_no_partition_are_reasons(make_bench: Callable[..., Any], bench: Any) -> None:
    assert "no consumer" in told(bench, consumers=0).reasons[0]
    (reason,) = told(make_bench()).reasons
    assert "no partition is assigned" in reason


def test_a_consumer_that_cannot_reach_kafka_degrades_and_says_since_when(bench: Any) -> None:
    lag = {f"{TOPIC}/0": 3}
    now = told(bench, 2, {b"a": ConsumerReport(lag, {}), b"b": ConsumerReport({}, {}, {}, 1_700_000_000_500)})
    assert (now.ready, now.reasons, now.lag_stale) == (True, (), True)
    (why,) = now.degraded
    assert why.startswith("broker_unreachable: ")
    assert why.endswith("since 2023-11-14T22:13:20.500000Z")
    assert now.gauges["consumers_without_kafka"] == 1
    well = told(bench, 1, {b"a": ConsumerReport(lag, {})})
    assert (well.degraded, well.lag_stale, well.gauges["consumers_without_kafka"]) == ((), False, 0)


def test_old_work_is_a_reason(bench: Any) -> None:
    bench.engine.queries.ask(Query("^GSPC", TREND, path="full"), bench.replies.append)
    assert told(bench).ready
    bench.engine.scheduler._clock = lambda: time.monotonic() + 11
    now = told(bench)
    assert not now.ready
    assert "oldest work item" in now.reasons[0]
    assert now.oldest_work_s > 10


def test_a_replay_is_a_reason(bench: Any) -> None:
    bench.engine.assign(Assign(TOPIC, 1, 1, 0, 50))
    assert told(bench).reasons == ("1 of 2 partitions are being refilled from the log",)


def test_a_failed_self_test_is_a_reason_until_the_next_one(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(segments: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(bench.runner, "run", broken)
        bench.engine.when_idle()
    assert told(bench).reasons == ("the self-test failed: out of memory",)
    bench.engine._next_self_test = 0.0
    bench.engine.when_idle()
    assert told(bench).ready


def test_the_self_test_changes_no_answer(bench: Any) -> None:
    cells = list(bench.runner.cells)
    bench.engine.when_idle()
    assert bench.runner.cells == cells


def test_consumers_are_told_apart_and_their_lags_put_together(bench: Any) -> None:
    moved = {"market.bars/1": RecordCounts(3, 3)}
    reports = {
        b"\x00\xaa": ConsumerReport({"market.bars/0": 4}, {"commits_total": 2.0}, moved),
        b"\x00\xbb": ConsumerReport({"market.bars/1": 0}, {"commits_total": 3.0, "rebuilds_total": 1.0}),
    }
    now = told(bench, 2, reports)
    assert now.lag == {"market.bars/0": 4, "market.bars/1": 0}
    assert now.consumer_counters == {
        "00aa": {"commits_total": 2.0},
        "00bb": {"commits_total": 3.0, "rebuilds_total": 1.0},
    }
    assert now.records == {"00aa": moved, "00bb": {}}


def test_a_session_shows_its_end(bench: Any) -> None:
    bench.engine.register(StandingPut("^*", TREND))
    (info,) = session_info(bench.engine, bench.engine.sessions["^GSPC"]).sessions
    assert (info.id, info.state, info.data_version, info.bars) == ("^GSPC", "LIVE", 40, 40)
    assert info.tokens == info.kv_tokens
    assert info.offsets == {"market.bars/0": 39}
    assert (info.ready, info.standing_queries) == (True, 1)
    assert info.ready_token in {word for _, word in bench.builder.answers.values()}
    assert [bar.time_us for bar in info.last_bars] == [n * 60_000_000 for n in range(35, 40)]


def test_sessions_without_bars_or_cells_are_shown_as_well(bench: Any, make_record: Callable[..., Record]) -> None:
    bench.engine.append_turn("agent", bench.builder.tool_payload("hello"))
    records = tuple(make_record(key, 40 + n) for n, key in enumerate("AB"))
    bench.engine.ingest.take(batch_of(records, 39, last=41, consumed=2))
    shown = {info.id: info for info in session_infos(bench.engine, SessionsRequest()).sessions}
    assert list(shown) == ["A", "B", "^GSPC", "agent"]
    assert (shown["A"].state, shown["A"].ready, shown["A"].last_event_time) == ("EMPTY", False, None)
    bench.engine.run_until_idle()
    shown = {info.id: info for info in session_infos(bench.engine, SessionsRequest()).sessions}
    assert shown["agent"].offsets == {}
    evicted = [info for info in shown.values() if info.state == "EVICTED"]
    assert evicted
    assert all(info.kv_tokens == 0 and info.ready for info in evicted)


def test_every_counter_and_gauge_has_a_help_text_and_no_other_does(
    make_bench: Callable[..., Any], tmp_path: Path
) -> None:
    writer = BoardBench(tmp_path / "ready.board").writer
    now = told(make_bench(board=writer))
    writer.close()
    assert set(now.gauges) == set(ENGINE_GAUGES)
    assert set(now.counters) == set(ENGINE_COUNTERS)


class _Walk:
    """Pages of the sessions of an engine, one after the other."""

    def __init__(self, engine: Any, **asked: Any) -> None:
        self.engine, self.asked = engine, asked
        self.pages: list[list[str]] = []

    def all(self) -> list[str]:
        after: str | None = ""
        while after is not None:
            reply = session_infos(self.engine, SessionsRequest(after=after, **self.asked))
            self.pages.append([info.id for info in reply.sessions])
            after = reply.next
        return [name for page in self.pages for name in page]


@pytest.fixture
def market(bench: Any, make_record: Callable[..., Record]) -> Any:
    names = ["B", "EURJPY", "EUR", "EURUSD", "ZAR", "A", "EURGBP", "EUS", "ER"]
    records = tuple(make_record(key, 40 + n) for n, key in enumerate(names))
    bench.engine.ingest.take(batch_of(records, 39, last=39 + len(names), consumed=len(names)))
    return bench.engine


@pytest.mark.parametrize("limit", range(1, 12))
def test_pages_of_any_length_hold_each_session_once_and_in_order(market: Any, limit: int) -> None:
    walk = _Walk(market, limit=limit)
    assert walk.all() == sorted(market.sessions)
    assert all(len(page) <= limit for page in walk.pages)


@pytest.mark.parametrize(
    ("pattern", "visible", "expected"),
    [
        ("EUR*", ("*",), ["EUR", "EURGBP", "EURJPY", "EURUSD"]),
        ("EUR", ("*",), ["EUR"]),
        ("*R", ("*",), ["ER", "EUR", "ZAR"]),
        ("*", ("EURU*", "A"), ["A", "EURUSD"]),
        ("EUR*", ("*Y", "*D", "^*"), ["EURJPY", "EURUSD"]),
        ("*", (), []),
        ("?", ("*",), []),
    ],
)
def test_a_page_is_of_a_pattern_and_of_what_may_be_seen(
    market: Any, pattern: str, visible: tuple[str, ...], expected: list[str]
) -> None:
    assert _Walk(market, pattern=pattern, visible=visible, limit=2).all() == expected


def test_a_page_goes_on_behind_a_session_that_has_gone(market: Any) -> None:
    first = session_infos(market, SessionsRequest(limit=3))
    assert first.next == "ER"
    market.drop_session(market.sessions["ER"])
    market.drop_session(market.sessions["EUR"])
    rest = session_infos(market, SessionsRequest(after=first.next, limit=2))
    assert [info.id for info in rest.sessions] == ["EURGBP", "EURJPY"]


def test_one_page_looks_at_a_bounded_number_of_ids(market: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_engine.process.status.LOOKS_A_PAGE", 4)
    walk = _Walk(market, pattern="*AR")
    assert walk.all() == ["ZAR"]
    assert walk.pages == [[], [], ["ZAR"]]
