"""Registered standing queries: patterns, shared entries, answers and what is forgotten."""

from __future__ import annotations

import pytest

from stream_engine.messages import AnswerChanged, StandingPut
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.standing.covering import covers
from stream_engine.standing.registered_queries import RegisteredQueries

TREND = "What is the trend?"


@pytest.fixture
def registered(builder: TokenBuilder) -> RegisteredQueries:
    return RegisteredQueries(builder)


def evaluation(session: str, query: str, answer: str, version: int = 1) -> AnswerChanged:
    return AnswerChanged(
        session=session, query=query, question=TREND, answer=answer, previous=None, initial=False,
        class_="trend", gap=1.0, confidence=None,
        session_version=version, topic="t", partition=0, offset=version - 1, event_time=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "session", "expected"),
    [
        ("*", "^GSPC", True),
        ("*", "", True),
        ("EUR*", "EURUSD=X", True),
        ("EUR*", "eurusd", False),
        ("EUR*", "XEUR", False),
        ("*USD", "BTC/USD", True),
        ("B*D", "BTC/USD", True),
        ("[x]?*", "[x]?rest", True),
        ("[x]?*", "xa", False),
        ("[x]?", "[x]?", True),
        ("[x]?", "x1", False),
        ("A?C", "ABC", False),
        ("[!A]*", "B", False),
        ("[!A]*", "[!A]B", True),
        ("]*[", "]x[", True),
        ("^GSPC", "^GSPC", True),
        ("a\\*", "a\\b", True),
        ("*", "two\nlines", True),
        ("", "A", False),
    ],
)
def test_only_the_asterisk_is_special(pattern: str, session: str, expected: bool) -> None:
    assert covers(pattern, session) is expected


def test_ids_are_chosen_around_taken_ones(registered: RegisteredQueries) -> None:
    registered.put(StandingPut("*", TREND, id="sq-1"), "trend")
    assert registered.put(StandingPut("*", TREND), "trend").id == "sq-2"
    assert registered.put(StandingPut("*", TREND), "trend").id == "sq-3"
    registered.delete("sq-2")
    assert registered.get("sq-2") is None
    assert registered.put(StandingPut("*", TREND), "trend").id == "sq-4"  # never an id that someone may still hold


def test_queries_of_one_question_share_an_entry_that_keeps_the_strictest_promise(
    registered: RegisteredQueries,
) -> None:
    registered.put(StandingPut("A*", TREND, "commit"), "trend")
    registered.put(StandingPut("*", f" {TREND} "), "trend")
    (entry,) = registered.entries("AAPL")
    assert (entry.key, entry.every_commit) == (TREND, True)
    (entry,) = registered.entries("MSFT")
    assert entry.every_commit is False


def test_entries_follow_every_change(registered: RegisteredQueries) -> None:
    assert registered.entries("A") == ()
    query = registered.put(StandingPut("A", TREND, id="q"), "trend")
    assert [entry.key for entry in registered.entries("A")] == [TREND]
    registered.put(StandingPut("B", TREND, id="q"), "trend")
    assert registered.entries("A") == ()
    assert [entry.key for entry in registered.entries("B")] == [TREND]
    registered.evaluated(evaluation("B", "q", "up"), "change")
    assert registered.delete(query.id) == {"B"}
    assert registered.entries("B") == ()
    assert registered.delete(query.id) == set()


def test_changes_are_told_from_repetitions(registered: RegisteredQueries) -> None:
    registered.put(StandingPut("*", TREND, id="q"), "trend")
    first = registered.evaluated(evaluation("A", "q", "up"), "change")
    assert first is not None
    assert (first.initial, first.previous) == (True, None)
    assert registered.evaluated(evaluation("A", "q", "up", 2), "change") is None
    assert registered.answers("A", "q")[0].session_version == 2  # the newest evaluation, changed or not
    changed = registered.evaluated(evaluation("A", "q", "down", 3), "change")
    assert changed is not None
    assert (changed.initial, changed.previous) == (False, "up")
    repeated = registered.evaluated(evaluation("A", "q", "down", 4), "commit")
    assert repeated is not None
    assert repeated.previous == "down"


def test_snapshots_may_be_of_one_session_and_one_query(registered: RegisteredQueries) -> None:
    for session in "AB":
        for query in "qr":
            registered.evaluated(evaluation(session, query, "up"), "change")
    assert len(registered.answers(None, None)) == 4
    assert {answer.query for answer in registered.answers("A", None)} == {"q", "r"}
    assert {answer.session for answer in registered.answers(None, "q")} == {"A", "B"}
    assert len(registered.answers("A", "q")) == 1
    assert registered.answers("C", None) == ()


def test_the_same_query_again_changes_nothing(registered: RegisteredQueries) -> None:
    first = registered.put(StandingPut("*", TREND, id="q"), "trend")
    registered.evaluated(evaluation("A", "q", "up"), "change")
    assert registered.put(StandingPut("*", TREND, id="q"), "trend") == first
    assert registered.answered("A", "q")
    registered.put(StandingPut("*", TREND, "commit", id="q"), "trend")
    assert not registered.answered("A", "q")


def test_nothing_is_kept_of_deleted_sessions_and_queries(registered: RegisteredQueries) -> None:
    registered.put(StandingPut("*", TREND, id="q"), "trend")
    for number in range(100):
        session = f"s{number}"
        registered.entries(session)
        registered.evaluated(evaluation(session, "q", "up"), "change")
        registered.forget_session(session)
    assert registered.answers(None, None) == ()
    assert registered._entries == {}
    registered.evaluated(evaluation("A", "q", "up"), "change")
    (session,) = registered.delete("q")
    assert registered.answers(None, None) == registered.answers("A", None) == registered.answers("A", "q") == ()
    assert not registered.answered("A", "q")
    registered.unlink(session, "q")
    assert registered._asked_of == registered._asked == registered._answers == {}


def test_a_query_of_the_same_id_that_comes_before_the_last_one_is_cleared_away_keeps_its_own(
    registered: RegisteredQueries,
) -> None:
    registered.put(StandingPut("*", TREND, id="q"), "trend")
    registered.evaluated(evaluation("A", "q", "up"), "change")
    registered.evaluated(evaluation("B", "q", "up"), "change")
    left = registered.delete("q")
    registered.put(StandingPut("A", TREND, id="q"), "trend")
    registered.evaluated(evaluation("A", "q", "down"), "change")
    for session in sorted(left):
        registered.unlink(session, "q")
    assert [answer.answer for answer in registered.answers("A", None)] == ["down"]
    assert registered.answers("B", None) == ()
    registered.forget_session("A")
    assert registered._asked_of == registered._asked == registered._answers == {}
