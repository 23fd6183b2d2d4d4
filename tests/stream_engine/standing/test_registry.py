"""The registry of standing queries: patterns, shared entries, answers and what is forgotten."""

from __future__ import annotations

import pytest

from stream_engine.messages import AnswerChanged, StandingPut
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.standing.registry import StandingRegistry, covers

TREND = "What is the trend?"


@pytest.fixture
def registry(builder: TokenBuilder) -> StandingRegistry:
    return StandingRegistry(builder)


def evaluation(session: str, query: str, answer: str, version: int = 1) -> AnswerChanged:
    return AnswerChanged(
        session, query, TREND, answer, None, False, class_="trend", gap=1.0, confidence=None,
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


def test_ids_are_chosen_around_taken_ones(registry: StandingRegistry) -> None:
    registry.put(StandingPut("*", TREND, id="sq-1"), "trend")
    assert registry.put(StandingPut("*", TREND), "trend").id == "sq-2"
    assert registry.put(StandingPut("*", TREND), "trend").id == "sq-3"
    assert registry.delete("sq-2")
    assert registry.put(StandingPut("*", TREND), "trend").id == "sq-4"  # never an id that someone may still hold


def test_queries_of_one_question_share_an_entry_that_keeps_the_strictest_promise(
    registry: StandingRegistry,
) -> None:
    registry.put(StandingPut("A*", TREND, "commit"), "trend")
    registry.put(StandingPut("*", f" {TREND} "), "trend")
    (entry,) = registry.entries("AAPL")
    assert (entry.key, entry.every_commit) == (TREND, True)
    (entry,) = registry.entries("MSFT")
    assert entry.every_commit is False


def test_entries_follow_every_change(registry: StandingRegistry) -> None:
    assert registry.entries("A") == ()
    query = registry.put(StandingPut("A", TREND, id="q"), "trend")
    assert [entry.key for entry in registry.entries("A")] == [TREND]
    registry.put(StandingPut("B", TREND, id="q"), "trend")
    assert registry.entries("A") == ()
    assert [entry.key for entry in registry.entries("B")] == [TREND]
    registry.delete(query.id)
    assert registry.entries("B") == ()
    assert not registry.delete(query.id)


def test_changes_are_told_from_repetitions(registry: StandingRegistry) -> None:
    registry.put(StandingPut("*", TREND, id="q"), "trend")
    first = registry.evaluated(evaluation("A", "q", "up"), "change")
    assert first is not None
    assert (first.initial, first.previous) == (True, None)
    assert registry.evaluated(evaluation("A", "q", "up", 2), "change") is None
    assert registry.answers("A", "q")[0].session_version == 2  # the newest evaluation, changed or not
    changed = registry.evaluated(evaluation("A", "q", "down", 3), "change")
    assert changed is not None
    assert (changed.initial, changed.previous) == (False, "up")
    repeated = registry.evaluated(evaluation("A", "q", "down", 4), "commit")
    assert repeated is not None
    assert repeated.previous == "down"


def test_snapshots_may_be_of_one_session_and_one_query(registry: StandingRegistry) -> None:
    for session in "AB":
        for query in "qr":
            registry.evaluated(evaluation(session, query, "up"), "change")
    assert len(registry.answers(None, None)) == 4
    assert {one.query for one in registry.answers("A", None)} == {"q", "r"}
    assert {one.session for one in registry.answers(None, "q")} == {"A", "B"}
    assert len(registry.answers("A", "q")) == 1
    assert registry.answers("C", None) == ()


def test_the_same_query_again_changes_nothing(registry: StandingRegistry) -> None:
    first = registry.put(StandingPut("*", TREND, id="q"), "trend")
    registry.evaluated(evaluation("A", "q", "up"), "change")
    assert registry.put(StandingPut("*", TREND, id="q"), "trend") == first
    assert registry.answered("A", "q")
    registry.put(StandingPut("*", TREND, "commit", id="q"), "trend")
    assert not registry.answered("A", "q")


def test_nothing_is_kept_of_deleted_sessions_and_queries(registry: StandingRegistry) -> None:
    registry.put(StandingPut("*", TREND, id="q"), "trend")
    for number in range(100):
        session = f"s{number}"
        registry.entries(session)
        registry.evaluated(evaluation(session, "q", "up"), "change")
        registry.forget_session(session)
    assert registry.answers(None, None) == ()
    assert registry._entries == {}
    registry.evaluated(evaluation("A", "q", "up"), "change")
    registry.delete("q")
    assert registry.answers(None, None) == ()
