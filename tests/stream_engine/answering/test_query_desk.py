"""Every query gets exactly one reply: bounds, deadlines, and sessions that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stream_engine.answering.query_desk as queries_module
from stream_engine.messages import Answer, Assign, ErrorReply, OffsetBound, Query, Record, Revoke
from tests.support.batches import batch_of
from tests.support.clock import Clock

TOPIC = "market.bars"
TREND = "What is the trend?"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(queries_module, "time", made)
    return made


@pytest.fixture
def bench(make_bench: Callable[..., Any], make_record: Callable[..., Record]) -> Any:
    made = make_bench()
    made.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    feed(made, [make_record("A", offset) for offset in range(40)])
    return made


def feed(bench: Any, records: list[Record]) -> None:
    first, last = records[0].offset, records[-1].offset
    assert bench.engine.ingest.take(batch_of(records, first - 1, last=last)) is None
    bench.engine.run_until_idle()
    bench.engine.ingest.settle()


def ask(bench: Any, **options: Any) -> None:
    bench.engine.queries.ask(Query(**{"session": "A", "question": TREND, **options}), bench.replies.append)


def only(bench: Any) -> Any:
    (reply,) = bench.replies
    assert bench.engine.queries.waiting == 0
    assert not bench.engine.scheduler.queries
    return reply


def test_a_bound_that_is_never_met_ends_at_the_deadline(bench: Any, clock: Clock) -> None:
    ask(bench, min_version=99, wait_ms=500)
    for _ in range(3):
        clock.now += 0.16
        bench.engine.step()
    assert bench.replies == []
    assert bench.engine.queries.waiting == 1
    clock.now += 0.03
    bench.engine.step()
    reply = only(bench)
    assert (reply.status, reply.kind) == (409, "freshness_not_met")
    assert bench.engine.counters.queries_refused_total == 1


def test_no_wait_is_answered_at_once(bench: Any, clock: Clock) -> None:
    ask(bench, min_version=99)
    assert only(bench).status == 409


def test_a_session_may_be_born_while_a_query_waits(
    bench: Any, make_record: Callable[..., Record], clock: Clock
) -> None:
    ask(bench, session="B", wait_ms=10_000)
    bench.engine.run_until_idle()
    assert bench.replies == []
    feed(bench, [make_record("B", 40)])
    bench.engine.run_until_idle()
    reply = only(bench)
    assert isinstance(reply, Answer)
    assert (reply.session, reply.state) == ("B", "WARMING_UP")


def test_a_session_deleted_while_a_query_waits_for_a_bound(bench: Any, clock: Clock) -> None:
    ask(bench, min_version=99, wait_ms=10_000)
    bench.engine.drop_session(bench.engine.sessions["A"])
    bench.engine.run_until_idle()
    clock.now += 11
    bench.engine.run_until_idle()
    assert only(bench).status == 404


def test_a_session_deleted_while_its_query_waits_for_a_step(bench: Any) -> None:
    ask(bench, path="full")
    ask(bench, path="full")
    bench.engine.drop_session(bench.engine.sessions["A"])
    assert [reply.status for reply in bench.replies] == [404, 404]
    assert not bench.engine.step()
    assert not bench.engine.scheduler.busy


def test_a_partition_revoked_while_its_queries_wait(bench: Any, clock: Clock) -> None:
    ask(bench, path="full")
    ask(bench, min_offset=OffsetBound(0, 99), wait_ms=1_000)
    bench.engine.revoke(Revoke(TOPIC, 0, 1))
    clock.now += 2
    bench.engine.run_until_idle()
    assert [reply.status for reply in bench.replies] == [404, 503]
    assert bench.engine.queries.waiting == 0


def test_questions_of_no_class_do_not_wait(bench: Any, clock: Clock) -> None:
    ask(bench, question="What is the price?", min_version=99, wait_ms=60_000)
    assert only(bench).status == 422


def test_ages_are_judged_when_the_query_is_looked_at(bench: Any, clock: Clock) -> None:
    clock.now = 2.0  # the newest record is of 1.039 s
    ask(bench, max_age_ms=961)
    bench.engine.run_until_idle()
    assert isinstance(only(bench), Answer)
    bench.replies.clear()
    clock.now = 2.001
    ask(bench, max_age_ms=961)
    assert only(bench).status == 409


def test_fast_only_says_when_there_is_nothing_ready(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench(preposition="off")
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    feed(bench, [make_record("A", offset) for offset in range(40)])
    ask(bench, path="fast")
    reply = only(bench)
    assert isinstance(reply, ErrorReply)
    assert (reply.status, reply.kind, reply.param) == (409, "no_ready_distribution", "path")
    assert bench.engine.counters.queries_refused_total == 1


def test_a_session_that_warms_up_takes_no_fast_path(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    feed(bench, [make_record("A", 0)])  # one bar
    assert bench.engine.sessions["A"].ready
    answer = bench.ask("A", TREND)
    assert isinstance(answer, Answer)
    assert answer.path in ("fallthrough", "cold")
    assert (answer.state, answer.bars) == ("WARMING_UP", 1)
    refused = bench.ask("A", TREND, path="fast")
    assert isinstance(refused, ErrorReply)
    assert refused.status == 409


def test_min_version_met_by_a_commit_in_progress_waits_for_its_end(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench(step_tokens=16)
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    feed(bench, [make_record("A", offset) for offset in range(10)])
    records = tuple(make_record("A", offset) for offset in range(10, 40))
    assert bench.engine.ingest.take(batch_of(records, 9, last=39, consumed=30)) is None
    assert bench.engine.step()
    ask(bench, min_version=40, path="auto")
    bench.engine.run_until_idle()
    answer = only(bench)
    assert isinstance(answer, Answer)
    assert answer.session_version == 40
    assert answer.gap in (bench.expected("A").gap, bench.expected("A", TREND).gap)


def test_replies_stay_with_their_questions(bench: Any) -> None:
    got: dict[str, list[Any]] = {}
    for number, question in enumerate((TREND, "What is the momentum?") * 5):
        name = f"{number}{question}"
        bench.engine.queries.ask(Query("A", question, path="full"), got.setdefault(name, []).append)
    bench.engine.run_until_idle()
    for name, replies in got.items():
        (reply,) = replies
        assert name.endswith(reply.question)
        assert reply.gap == bench.expected("A", reply.question).gap


def test_an_offset_of_a_partition_that_does_not_exist_is_refused_at_once(bench: Any, clock: Clock) -> None:
    query = Query("A", TREND, min_offset=OffsetBound(4, 0), wait_ms=5_000)
    bench.engine.queries.ask(query, bench.replies.append)
    assert bench.replies == []  # how many there are is not known yet
    bench.engine.ingest.partitions.sizes[TOPIC] = 4
    bench.engine.queries.ask(query, bench.replies.append)
    (refused,) = bench.replies
    assert isinstance(refused, ErrorReply)
    assert (refused.status, refused.param, refused.code) == (422, "min_offset", "no_such_partition")
    assert refused.message == "market.bars has no partition 4: it has 4"
    bench.engine.queries.ask(Query("A", TREND, min_offset=OffsetBound(3, 0)), bench.replies.append)
    assert bench.replies[-1].status == 409  # it exists, and is not applied so far


def test_a_query_that_nobody_waits_for_any_more_costs_no_step(bench: Any, clock: Clock) -> None:
    ask(bench, path="full", patience_ms=10_000)
    ask(bench, path="full", question="What is the momentum?", patience_ms=30_000)
    steps = len(bench.runner.steps)
    clock.now += 10.0
    bench.engine.run_until_idle()
    late, answer = bench.replies
    assert isinstance(late, ErrorReply)
    assert (late.status, late.kind, late.retry_after_s) == (503, "overloaded", 1.0)
    assert isinstance(answer, Answer)
    entry = bench.builder.query_entry("What is the momentum?")
    (run,) = bench.runner.steps[steps:]
    assert [branch.tokens for segment in run for branch in segment.branches] == [entry]
    assert bench.engine.counters.queries_expired_total == 1
    assert bench.engine.counters.queries_refused_total == 0


def test_a_bound_that_is_waited_for_longer_than_its_asker_does(bench: Any, clock: Clock) -> None:
    """As where the engine was held up: patience ends after the deadline, but nobody looked in between."""
    ask(bench, min_version=99, wait_ms=500, patience_ms=10_500)
    clock.now += 10.5
    bench.engine.step()
    assert only(bench).status == 503
    assert bench.engine.counters.queries_expired_total == 1


def test_as_many_queries_wait_as_may_and_the_next_is_refused(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], clock: Clock
) -> None:
    bench = make_bench(max_queries=3, promoted_questions=0)
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    feed(bench, [make_record("A", offset) for offset in range(40)])
    for _ in range(2):
        ask(bench, min_version=41, wait_ms=60_000, path="full")
    ask(bench, path="full")
    assert bench.replies == []
    for options in ({"path": "full"}, {"min_version": 99, "wait_ms": 60_000}):
        ask(bench, **options)
        refused = bench.replies.pop()
        assert (refused.status, refused.kind, refused.retry_after_s) == (429, "overloaded", 1.0)
    assert bench.engine.counters.queries_shed_total == 2
    # What waits already is not refused when it comes to its step.
    feed(bench, [make_record("A", 40)])
    assert [type(reply) for reply in bench.replies] == [Answer] * 3
    ask(bench, path="full")
    bench.engine.run_until_idle()
    assert isinstance(bench.replies[-1], Answer)
    assert bench.engine.counters.queries_shed_total == 2


def test_ready_answers_are_given_however_many_queries_wait(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = make_bench(max_queries=1)
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    feed(bench, [make_record("A", offset) for offset in range(40)])
    ask(bench, path="full")
    ask(bench, path="fast")
    (ready,) = bench.replies
    assert isinstance(ready, Answer)
    assert ready.path == "fast"


def test_overload_goes_by_and_leaves_nothing_behind(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], clock: Clock
) -> None:
    """Far more is offered than is run: a small step a second, a hundred queries in each, of askers who wait for
    two seconds."""
    bench = make_bench(max_queries=150, step_tokens=32)
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
    feed(bench, [make_record("A", offset) for offset in range(40)])
    for _ in range(20):
        for _ in range(100):
            ask(bench, path="full", patience_ms=2_000)
        assert len(bench.engine.scheduler.queries) <= bench.engine.settings.max_queries
        clock.now += 1.0
        bench.engine.step()
    bench.engine.run_until_idle()
    assert len(bench.replies) == 2_000, "every query gets exactly one reply"
    answered = sum(isinstance(reply, Answer) for reply in bench.replies)
    counters = bench.engine.counters
    assert answered > 0
    assert counters.queries_shed_total > 0
    assert counters.queries_expired_total > 0
    assert answered + counters.queries_shed_total + counters.queries_expired_total == 2_000
    assert isinstance(bench.ask("A", TREND, path="full"), Answer)
