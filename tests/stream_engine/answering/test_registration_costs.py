"""What a standing query costs: counted in sessions and queries that are looked at, whatever else is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.answering.registration import SLICE
from stream_engine.messages import Assign, Record, StandingPut, StandingQuery
from stream_engine.standing.covering import Covering

TOPIC, TREND = "market.bars", "What is the trend?"


@pytest.fixture
def market(make_bench: Callable[..., Any], make_record: Callable[..., Record]) -> Callable[[int], Any]:
    def make(count: int) -> Any:
        bench = make_bench(sessions=2, preposition="off")
        assert bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
        bench.feed([make_record(f"S{number:04}", number) for number in range(count)], -1)
        return bench

    return make


@pytest.mark.parametrize("count", [3, SLICE * 3])
def test_a_query_of_one_session_looks_at_that_one(market: Callable[[int], Any], count: int) -> None:
    bench = market(count)
    registration = bench.engine.registration
    for number in range(count):
        bench.engine.register(StandingPut(f"S{number:04}", TREND, id=f"q{number}"))
    bench.engine.run_until_idle()
    before, looked = registration.looked, bench.engine.standing.looked
    assert bench.engine.unregister("q1")
    assert bench.engine.register(StandingPut("S0001", TREND, id="q1"))
    bench.engine.run_until_idle()
    assert registration.looked - before == 2
    assert bench.engine.standing.looked - looked <= 4, "no query of another session is held against it"
    assert registration.waiting == 0


def test_a_pattern_goes_through_the_sessions_slice_by_slice(market: Callable[[int], Any]) -> None:
    bench = market(SLICE * 3 + 5)
    registration = bench.engine.registration
    bench.engine.register(StandingPut("*", TREND, id="all"))
    assert registration.looked == SLICE
    assert registration.left("all") == registration.waiting == SLICE * 2 + 5
    assert bench.engine.step(), "the next slice is work"
    assert registration.left("all") == SLICE + 5
    bench.engine.run_until_idle()
    assert registration.waiting == 0
    assert len(bench.engine.standing.answers(None, "all")) == SLICE * 3 + 5
    bench.engine.check_integrity()

    before = registration.looked
    assert bench.engine.unregister("all")
    assert registration.looked - before == SLICE
    bench.engine.check_integrity()
    bench.engine.run_until_idle()
    assert registration.looked - before == SLICE * 3 + 5
    assert not any(session.ready for session in bench.engine.sessions.values())


def test_a_pattern_that_goes_stops_on_its_way(market: Callable[[int], Any]) -> None:
    bench = market(SLICE * 3)
    bench.engine.register(StandingPut("*", TREND, id="all"))
    assert bench.engine.unregister("all")
    bench.engine.run_until_idle()
    assert bench.engine.registration.looked <= 2 * SLICE
    assert bench.engine.standing.answers(None, None) == ()


def test_of_ten_thousand_patterns_those_below_its_beginnings_are_held_against_a_session() -> None:
    covering = Covering()
    for number in range(10_000):
        covering.add(StandingQuery(f"p{number}", f"K{number:05}*", TREND, "change", "trend"))
    covering.add(StandingQuery("own", "K00017X", TREND, "change", "trend"))
    covering.add(StandingQuery("all", "*X", TREND, "change", "trend"))
    assert [query.id for query in covering.of("K00017X")] == ["p17", "own", "all"]
    assert covering.looked == 3


def test_an_id_that_holds_an_asterisk_is_found_once() -> None:
    covering = Covering()
    covering.add(StandingQuery("q", "A*", TREND, "change", "trend"))
    assert [query.id for query in covering.of("A*")] == ["q"]
