"""What a query over a whole market leaves in the answers topic is looked for slice by slice."""

from __future__ import annotations

import pytest

from stream_engine.messages import AnswerChanged, StandingPut
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.desks.orphans import SLICE, Orphans
from stream_engine.standing.registered_queries import RegisteredQueries

TREND = "What is the trend?"
MARKET = 3 * SLICE + 5


@pytest.fixture
def standing(builder: TokenBuilder) -> RegisteredQueries:
    """One query, told of a whole market: of a half of it in an earlier life of the engine."""
    standing = RegisteredQueries(builder)
    standing.put(StandingPut("*", TREND, id="all"), "trend")
    standing.restore(told(f"S{number:04}") for number in range(0, MARKET, 2))
    for number in range(MARKET):
        standing.evaluated(told(f"S{number:04}", 6), "change")
    return standing


def told(session: str, version: int = 5, query: str = "all") -> AnswerChanged:
    return AnswerChanged(
        session, query, TREND, "up", None, True, class_="trend", gap=1.0, confidence=None,
        session_version=version, topic="bars", partition=0, offset=version - 1, event_time=None,
    )  # fmt: skip


def slices(orphans: Orphans) -> list[list[str]]:
    found = []
    while True:
        before = orphans.looked
        gone = [answer.session for answer in orphans.take()]
        if orphans.looked == before:
            return found
        found.append(gone)


def test_each_answer_of_a_deleted_query_is_withdrawn_once(standing: RegisteredQueries) -> None:
    orphans = Orphans(standing)
    orphans.suspect("all")
    assert orphans.looked == 0
    standing.delete("all")
    found = slices(orphans)
    assert [len(gone) for gone in found] == [SLICE, SLICE, SLICE, 5]
    assert sorted(name for gone in found for name in gone) == [f"S{number:04}" for number in range(MARKET)]


def test_a_query_that_comes_again_meanwhile_keeps_what_it_covers(standing: RegisteredQueries) -> None:
    orphans = Orphans(standing)
    orphans.suspect("all")
    standing.delete("all")
    first = list(orphans.take())
    standing.put(StandingPut("S0*", TREND, id="all"), "trend")
    assert (len(first), sum(len(gone) for gone in slices(orphans))) == (SLICE, 0)


def test_a_round_through_all_answers_begins_anew_with_each_partition(standing: RegisteredQueries) -> None:
    standing.restore([told("S0001", query="gone"), *(told(f"S{number:04}") for number in range(MARKET))])
    orphans = Orphans(standing)
    for _ in range(10):
        orphans.suspect_all()
        assert len(list(orphans.take())) <= 1
        assert orphans.looked <= 10 * SLICE
    before = orphans.looked
    orphans.suspect_all()
    assert [name for gone in slices(orphans) for name in gone] == ["S0001"]
    assert orphans.looked - before == MARKET + 1


def test_many_queries_share_a_slice(standing: RegisteredQueries) -> None:
    for number in range(10):
        standing.put(StandingPut("*", TREND, id=f"q{number}"), "trend")
        standing.evaluated(told("A", query=f"q{number}"), "change")
    orphans = Orphans(standing)
    for number in range(10):
        orphans.suspect(f"q{number}")
        standing.delete(f"q{number}")
    assert [answer.query for answer in orphans.take()] == [f"q{number}" for number in range(10)]
