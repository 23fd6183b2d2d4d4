"""What a pattern asks of a whole market is evaluated when there is time, and takes no session's cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import Answer, AnswerChanged, Assign, ErrorReply, Query, Record, StandingPut
from stream_engine.session.session import SessionState
from stream_engine.state.scheduler import CANDIDATES, Lane

TOPIC, TREND = "market.bars", "What is the trend?"
KEYS = tuple(f"S{number:02}" for number in range(12))
CELLS = 3


@pytest.fixture
def market(fed: Callable[..., Any]) -> Any:
    bench = fed(KEYS, bars=40, sessions=CELLS)
    assert bench.engine.budget.resident == KEYS[:CELLS]
    return bench


def newest(bench: Any) -> dict[str, int]:
    return {answer.session: answer.session_version for answer in bench.engine.standing.answers(None, "all")}


def versions(bench: Any) -> dict[str, int]:
    return {name: session.version for name, session in bench.engine.sessions.items()}


def bar(bench: Any, make_record: Callable[..., Record], *keys: str, run: bool = True) -> None:
    follows = bench.engine.ingest.partitions.all()[0].taken
    records = [make_record(key, follows + 1 + n, follows + 1 + n) for n, key in enumerate(keys)]
    bench.feed(records, follows, run=run)


def test_every_session_is_evaluated_at_each_version_and_nobody_loses_cells(
    market: Any, make_record: Callable[..., Record]
) -> None:
    market.engine.register(StandingPut("*", TREND, id="all"))
    market.engine.run_until_idle()
    assert newest(market) == versions(market)
    for _ in range(2):
        bar(market, make_record, *KEYS)
        assert newest(market) == versions(market)
    assert market.engine.counters.evictions_total == 0
    assert market.engine.budget.resident == KEYS[:CELLS], "and none was used more than the others"
    for key in KEYS:
        assert market.engine.sessions[key].ready[TREND].gap == market.expected(key, TREND).gap


def progress(bench: Any) -> tuple[int, int]:
    shown = bench.engine.registration.shown(bench.engine.standing.get("all"))
    return shown.sessions_evaluated, shown.sessions_waiting


def test_it_tells_how_far_it_is(market: Any, make_record: Callable[..., Record]) -> None:
    count = len(KEYS)
    market.engine.register(StandingPut("*", TREND, id="all"))
    assert progress(market) == (0, count)
    met = [progress(market)]
    while market.engine.step():
        met.append(progress(market))
    assert met == sorted(met), "it goes on only"
    assert {sum(at) for at in met} == {count}
    assert len(set(met)) > 3
    assert progress(market) == (count, 0)
    bar(market, make_record, *KEYS, run=False)
    assert market.engine.step()
    assert progress(market) == (count, count - CELLS), "those with cells were evaluated with their commits"
    market.engine.drop_session(market.engine.sessions[KEYS[-1]])
    assert progress(market) == (count - 1, count - CELLS - 1)
    market.engine.run_until_idle()
    assert progress(market) == (count - 1, 0)
    market.engine.unregister("all")
    market.engine.register(StandingPut("*", "Is there momentum?", id="all"))
    assert progress(market) == (0, count - 1)


def test_a_question_waits_for_one_step_of_it_at_most(market: Any) -> None:
    market.engine.register(StandingPut("*", TREND, id="all"))
    while market.engine.scheduler.waiting(Lane.REFILL) > len(KEYS) // 2 or not market.engine.standing.answers(
        None, "all"
    ):
        assert market.engine.step()
    market.engine.queries.ask(Query(KEYS[0], TREND, "full"), market.replies.append)
    assert market.engine.step()
    assert isinstance(market.replies[-1], Answer)
    assert market.engine.scheduler.waiting(Lane.REFILL), "the pattern's work waited meanwhile"
    market.engine.run_until_idle()
    assert newest(market) == versions(market)


def test_a_record_is_committed_before_what_is_left_of_it(market: Any, make_record: Callable[..., Record]) -> None:
    market.engine.register(StandingPut("*", TREND, id="all"))
    while not market.engine.scheduler.waiting(Lane.REFILL):
        assert market.engine.step()
    bar(market, make_record, KEYS[-1], run=False)
    commits = market.engine.counters.commits_total
    assert market.engine.step()
    assert market.engine.counters.commits_total == commits + 1
    assert market.engine.scheduler.waiting(Lane.REFILL)


def test_a_session_that_is_given_cells_while_it_waits_is_evaluated_all_the_same(market: Any) -> None:
    market.engine.register(StandingPut("*", TREND, id="all"))
    while not market.engine.scheduler.waiting(Lane.REFILL):
        assert market.engine.step()
    market.ask(KEYS[-1], "Is there momentum?", path="full")
    assert KEYS[-1] in market.engine.budget.resident
    assert newest(market) == versions(market)


def test_a_query_of_the_session_itself_makes_it_a_demand(market: Any) -> None:
    market.engine.register(StandingPut("*", TREND, id="all"))
    market.engine.register(StandingPut(KEYS[-1], TREND, id="own"))
    market.engine.run_until_idle()
    assert KEYS[-1] in market.engine.budget.resident
    assert newest(market) == versions(market)


def test_a_restart_serves_whom_it_is_asked_for_first(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """Whole partitions go live at once: a pattern's evaluations take no cells for that, and nobody's go."""
    count = 3 * CANDIDATES
    bench = make_bench(sessions=2)
    bench.engine.register(StandingPut("*", TREND, id="all"))
    assert bench.engine.assign(Assign(TOPIC, 0, 1, count, count))
    keys = [f"S{number:04}" for number in range(count)]
    bench.claim(*(make_record(key, offset) for offset, key in enumerate(keys)))
    refused = []
    bench.engine.queries.ask(Query(keys[-1], TREND), refused.append)
    (error,) = refused
    assert isinstance(error, ErrorReply)
    assert error.kind == "session_rebuilding"
    assert bench.engine.step()
    assert bench.engine.sessions[keys[-1]].serving
    assert sum(session.state is SessionState.REBUILDING for session in bench.engine.sessions.values()) > CANDIDATES
    assert isinstance(bench.ask(keys[-1], TREND), Answer)
    assert progress(bench) == (count, 0)
    assert newest(bench) == versions(bench)
    assert bench.engine.counters.evictions_total == 0, "it was the first to get cells"
    assert sum(isinstance(event, AnswerChanged) for event in bench.events) == count


def test_a_step_begins_as_many_commits_as_it_has_time_for(
    market: Any, make_record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_engine.engine.planner.PLANNING_S", -1.0)
    bar(market, make_record, *KEYS, run=False)
    for left in reversed(range(len(KEYS))):
        assert market.engine.step()
        assert len(market.engine.scheduler.commits) == left
