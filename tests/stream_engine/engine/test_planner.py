"""What goes into a step: bounds, starvation, residence, and standing queries at odd moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import Answer, AnswerChanged, Assign, ErrorReply, Query, Record, StandingPut
from stream_engine.session.session import SessionState
from tests.support.batches import batch_of

TOPIC = "market.bars"
TREND = "What is the trend?"
MOMENTUM = "What is the momentum?"


class Feed:
    """Records of partition 0, one bar each."""

    def __init__(self, bench: Any, make_record: Callable[..., Record]) -> None:
        self.bench = bench
        self.offset = 0
        self._make = make_record
        bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))

    def send(self, *keys: str, bars: int = 1, run: bool = True) -> None:
        records = [
            self._make(key, self.offset + number * len(keys) + place, self.offset + number)
            for number in range(bars)
            for place, key in enumerate(keys)
        ]
        follows, self.offset = self.offset - 1, self.offset + len(records)
        batch = batch_of(records, follows, last=self.offset - 1)
        assert self.bench.engine.ingest.take(batch) is None
        if run:
            self.bench.engine.run_until_idle()
            self.bench.engine.check_integrity()
            assert not self.bench.engine.scheduler.busy
            assert [ack.last for ack in self.bench.engine.ingest.settle()] == [self.offset - 1]


@pytest.fixture
def start(make_bench: Callable[..., Any], make_record: Callable[..., Record]) -> Callable[..., Feed]:
    def make(*keys: str, bars: int = 40, **options: Any) -> Feed:
        feed = Feed(make_bench(**options), make_record)
        feed.send(*keys, bars=bars)
        return feed

    return make


def evaluations(bench: Any) -> list[tuple[str, int]]:
    return [(e.session, e.session_version) for e in bench.events if isinstance(e, AnswerChanged)]


def ask(bench: Any, session: str, question: str = TREND) -> None:
    bench.engine.queries.ask(Query(session, question, path="full"), bench.replies.append)


def test_a_session_asked_in_every_step_still_commits(start: Callable[..., Feed]) -> None:
    feed = start("A", commit_every=3)
    bench = feed.bench
    before = bench.engine.sessions["A"].version
    feed.send("A", run=False)
    for _ in range(3):
        ask(bench, "A")
        assert bench.engine.step()
    assert bench.engine.sessions["A"].version == before + 1
    assert [reply.session_version - before for reply in bench.replies] == [0, 0, 1]
    assert bench.replies[-1].gap == bench.expected("A", TREND).gap


def test_a_query_that_finds_all_cells_taken_waits_while_the_commit_goes_on(start: Callable[..., Feed]) -> None:
    feed = start("A", "B", sessions=1, step_tokens=16)
    bench = feed.bench
    feed.send("A", bars=40, run=False)
    while "A" not in bench.engine.budget.resident or not bench.engine.scheduler.commits["A"].started:
        assert bench.engine.step()
    ask(bench, "B")
    while bench.engine.scheduler.busy:
        assert bench.engine.step(), "there is work, and the engine calls itself idle"
    (answer,) = bench.replies
    assert isinstance(answer, Answer)
    assert answer.gap == bench.expected("B", TREND).gap


def test_more_sessions_than_cells_alternate(start: Callable[..., Feed]) -> None:
    keys = tuple("ABCDE")
    feed = start(*keys, sessions=2)
    for _ in range(2):
        for key in keys:
            ask(feed.bench, key)
    feed.bench.engine.run_until_idle()
    assert len(feed.bench.replies) == 10
    for reply in feed.bench.replies:
        assert reply.gap == feed.bench.expected(reply.session, TREND).gap
    assert not feed.bench.engine.scheduler.busy


@pytest.mark.parametrize("step_tokens", [1, 3, 7, 16])
def test_a_bound_smaller_than_any_entry_stalls_nothing(step_tokens: int, start: Callable[..., Feed]) -> None:
    feed = start("A", "B", bars=34, step_tokens=step_tokens)
    bench = feed.bench
    bench.engine.register(StandingPut("*", TREND, "commit"))
    bench.engine.register(StandingPut("A", MOMENTUM))
    bench.engine.run_until_idle()
    feed.send("A", "B", bars=35)
    ask(bench, "A")
    ask(bench, "B", MOMENTUM)
    bench.engine.run_until_idle()
    assert [isinstance(reply, Answer) for reply in bench.replies] == [True, True]
    assert bench.engine.sessions["A"].ready[MOMENTUM].gap == bench.expected("A", MOMENTUM).gap
    assert bench.engine.sessions["B"].ready[""].gap == bench.expected("B").gap
    longest = max(len(bench.builder.query_entry(question)) for question in (TREND, MOMENTUM))
    assert max(sum(segment.size for segment in step) for step in bench.runner.steps) <= step_tokens + 2 * longest


def test_on_commit_is_evaluated_at_every_commit_though_cells_are_short(start: Callable[..., Feed]) -> None:
    keys = tuple("ABCDE")
    feed = start(*keys, sessions=3)
    bench = feed.bench
    bench.engine.register(StandingPut("*", TREND, "commit"))
    bench.engine.run_until_idle()
    assert {session for session, _ in evaluations(bench)} == set(keys)
    for _ in range(3):
        bench.events.clear()
        feed.send(*keys)
        versions = {key: bench.engine.sessions[key].version for key in keys}
        assert dict(evaluations(bench)) == versions


def test_on_commit_is_not_put_off_in_full_steps(start: Callable[..., Feed]) -> None:
    keys = ("A", "B", "C")
    feed = start(*keys, step_tokens=12)
    bench = feed.bench
    bench.engine.register(StandingPut("*", TREND, "commit"))
    bench.engine.run_until_idle()
    bench.events.clear()
    feed.send(*keys, run=False)
    while bench.engine.scheduler.commits:
        assert bench.engine.step()
    # No idle time was needed: data that had followed at once would have found each version evaluated.
    assert sorted(session for session, _ in evaluations(bench)) == list(keys)


def test_a_query_put_off_by_questions_is_left_out_a_bounded_number_of_times(start: Callable[..., Feed]) -> None:
    feed = start("A", "B", commit_every=1, max_deferrals=2)
    bench = feed.bench
    session = bench.engine.sessions["B"]
    rode = []
    for _ in range(6):
        feed.send("B", run=False)
        ask(bench, "A")
        assert bench.engine.step()
        rode.append("" in session.ready)
    assert rode == [False, False, True, False, False, True]


def test_the_second_query_of_a_question_is_answered_at_once(start: Callable[..., Feed]) -> None:
    bench = start("A").bench
    bench.engine.register(StandingPut("*", TREND, id="first"))
    bench.engine.run_until_idle()
    steps = len(bench.runner.steps)
    bench.engine.register(StandingPut("A", TREND, id="second"))
    bench.engine.run_until_idle()
    assert [(e.query, e.initial) for e in bench.events if isinstance(e, AnswerChanged)] == [
        ("first", True),
        ("second", True),
    ]
    assert len(bench.runner.steps) == steps  # the distribution was there already
    bench.engine.register(StandingPut("A", TREND, id="second"))
    bench.engine.run_until_idle()
    assert len(evaluations(bench)) == 2


def test_a_query_registered_on_an_evicted_session_is_evaluated(start: Callable[..., Feed]) -> None:
    bench = start("A", "B", "C", sessions=2).bench
    assert bench.engine.sessions["C"].state is SessionState.EVICTED
    bench.engine.register(StandingPut("C", TREND))
    bench.engine.run_until_idle()
    assert [session for session, _ in evaluations(bench)] == ["C"]
    assert bench.engine.sessions["C"].state is SessionState.LIVE
    assert bench.engine.sessions["C"].ready[TREND].gap == bench.expected("C", TREND).gap
    bench.engine.check_integrity()


@pytest.mark.parametrize("step_tokens", [16, 512])
def test_a_pattern_over_more_sessions_than_cells_reaches_them_all_once(
    step_tokens: int, start: Callable[..., Feed]
) -> None:
    keys = tuple("ABCDEFG")
    bench = start(*keys, sessions=2, step_tokens=step_tokens).bench
    bench.engine.register(StandingPut("*", TREND))
    bench.engine.run_until_idle()
    assert sorted(session for session, _ in evaluations(bench)) == list(keys)
    assert not bench.engine.scheduler.busy
    bench.engine.check_integrity()


def test_a_query_registered_during_a_commit_is_of_that_commit(start: Callable[..., Feed]) -> None:
    feed = start("A", step_tokens=16)
    bench = feed.bench
    feed.send("A", bars=35, run=False)
    assert bench.engine.step()
    assert not bench.engine.sessions["A"].current
    bench.engine.register(StandingPut("A", TREND))
    bench.engine.run_until_idle()
    assert evaluations(bench) == [("A", bench.engine.sessions["A"].version)]


def test_a_query_deleted_while_it_is_due_runs_nothing(start: Callable[..., Feed]) -> None:
    bench = start("A").bench
    steps = len(bench.runner.steps)
    query = bench.engine.register(StandingPut("A", TREND))
    assert bench.engine.scheduler.busy
    assert bench.engine.unregister(query.id)
    bench.engine.run_until_idle()
    assert not bench.engine.scheduler.busy
    assert evaluations(bench) == []
    assert len(bench.runner.steps) == steps


def test_a_session_dropped_while_it_is_due_runs_nothing(start: Callable[..., Feed]) -> None:
    bench = start("A", "B").bench
    bench.engine.register(StandingPut("*", TREND))
    bench.engine.drop_session(bench.engine.sessions["A"])
    bench.engine.run_until_idle()
    assert [session for session, _ in evaluations(bench)] == ["B"]


def test_a_replaced_query_leaves_nothing_of_its_old_question(start: Callable[..., Feed]) -> None:
    bench = start("A", "B").bench
    bench.engine.register(StandingPut("*", TREND, id="q"))
    bench.engine.run_until_idle()
    bench.engine.register(StandingPut("A", MOMENTUM, id="q"))
    bench.engine.run_until_idle()
    assert set(bench.engine.sessions["A"].ready) == {"", MOMENTUM}
    assert set(bench.engine.sessions["B"].ready) == {""}
    assert {(answer.session, answer.question) for answer in bench.engine.standing.answers(None, None)} == {
        ("A", MOMENTUM)
    }


def test_a_question_longer_than_the_share_is_refused_and_the_next_one_answered(
    start: Callable[..., Feed],
) -> None:
    bench = start("A").bench
    reply = bench.ask("A", "What is the trend" + "?" * 5_000, path="full")
    assert isinstance(reply, ErrorReply)
    assert (reply.status, reply.code) == (422, "question_too_long")
    assert isinstance(bench.ask("A", TREND, path="full"), Answer)
    assert not bench.engine.scheduler.busy


def test_a_standing_question_without_room_is_skipped_and_does_not_stay_due(start: Callable[..., Feed]) -> None:
    feed = start("A")
    bench = feed.bench
    bench.engine.register(StandingPut("A", "What is the trend" + "?" * 5_000))
    bench.engine.run_until_idle()
    assert not bench.engine.scheduler.busy
    assert bench.engine.counters.prepositions_skipped_total == 1
    feed.send("A")
    assert bench.engine.counters.prepositions_skipped_total == 2
    assert "" in bench.engine.sessions["A"].ready


def test_many_questions_of_one_session_share_steps(start: Callable[..., Feed]) -> None:
    bench = start("A", "B").bench
    steps = len(bench.runner.steps)
    for number in range(40):
        ask(bench, "AB"[number % 2], (TREND, MOMENTUM)[number // 2 % 2])
    bench.engine.run_until_idle()
    assert len(bench.replies) == 40
    for reply in bench.replies:
        assert reply.gap == bench.expected(reply.session, reply.question).gap
    assert len(bench.runner.steps) - steps < 20


@pytest.mark.parametrize("mode", ["idle", "off"])
def test_other_modes_answer_standing_queries_in_idle_time(mode: str, start: Callable[..., Feed]) -> None:
    feed = start("A", preposition=mode)
    bench = feed.bench
    bench.engine.register(StandingPut("A", TREND, "commit"))
    bench.engine.run_until_idle()
    feed.send("A")
    assert evaluations(bench)[-1] == ("A", bench.engine.sessions["A"].version)
    assert ("" in bench.engine.sessions["A"].ready) is (mode == "idle")
