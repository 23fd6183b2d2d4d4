"""Answers carry their evidence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stream_engine.answering.answers import OTHER, basis_of, build_evaluation, word_of
from stream_engine.decision.answer import Found, answer_of
from stream_engine.decision.freshness import age_of
from stream_engine.decision.ready import ReadyDistribution, StateFlag
from stream_engine.messages import Answer, Query, Record, StandingQuery
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.session.evidence import evidence_of
from stream_engine.session.session import Session, SessionState, Source
from stream_engine.util.timestamps import NO_TIME, event_time


@pytest.fixture
def session(builder: TokenBuilder, make_record: Callable[..., Record]) -> Session:
    made = Session("^GSPC", builder, Source("market.bars", 3))
    for offset in range(40):
        made.apply(make_record("^GSPC", offset))
    made.state = SessionState.LIVE
    return made


def ready(top1: int) -> ReadyDistribution:
    return ReadyDistribution(top1, 0, 2.5, 5.0, 6.0, 0.9, 99)


@pytest.mark.parametrize(
    ("time_us", "expected"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"),
        (1_700_000_000_000_001, "2023-11-14T22:13:20.000001Z"),
        (-86_400_000_000, "1969-12-31T00:00:00Z"),
        (-2_208_988_800_000_000, "1900-01-01T00:00:00Z"),
        (7_258_118_400_000_000 - 1, "2199-12-31T23:59:59.999999Z"),
    ],
)
def test_event_times_are_rfc_3339_to_the_microsecond(time_us: int | None, expected: str | None) -> None:
    assert event_time(time_us) == expected


def told(session: Session, token: int, now_ms: int) -> Answer:
    found = Found(
        answer="up",
        question_class="trend",
        path="cold",
        ready=ready(token),
        gate=None,
        tau=None,
        confidence=None,
        routed_by="none",
        entry_tokens=7,
        reused_tokens=5,
        latency_us=12,
    )
    return answer_of(Answer, Query("^GSPC", "What is the trend?"), found, basis_of(session), now_ms)


def test_an_answer_names_state_source_and_cost(session: Session, builder: TokenBuilder) -> None:
    answer = told(session, next(iter(builder.answers)), 2_000)
    assert (answer.answer, answer.class_, answer.gate, answer.tau, answer.gap) == ("up", "trend", None, None, 2.5)
    assert (answer.topic, answer.partition, answer.offset) == ("market.bars", 3, 39)
    assert (answer.session_version, answer.age_ms, answer.state) == (40, 2_000 - 1_039, "LIVE")
    assert (answer.bars, answer.window_bars) == (32, builder.profile.window_bars)
    assert answer.event_time == "1970-01-01T00:39:00Z"
    assert (answer.entry_tokens, answer.reused_tokens, answer.latency_us) == (7, 5, 12)


def test_a_clock_behind_kafkas_makes_no_negative_age(session: Session, builder: TokenBuilder) -> None:
    assert told(session, next(iter(builder.answers)), 1_039 - 1_000).age_ms == 0


def test_a_stamp_ahead_of_the_clock_makes_the_age_unknown(session: Session, builder: TokenBuilder) -> None:
    session.timestamp_ms *= 1_000  # microseconds
    assert told(session, next(iter(builder.answers)), 1_040).age_ms is None


def test_a_session_without_bars_has_no_event_time_on_the_board(builder: TokenBuilder) -> None:
    evidence = evidence_of(Session("A", builder), -1)
    assert event_time(evidence.event_time_us) is None
    assert age_of(evidence.record_time_ms, 10**15) is None


def test_a_token_that_is_no_word_of_the_class_is_other(builder: TokenBuilder) -> None:
    token, (name, word) = next(iter(builder.answers.items()))
    assert word_of(builder, [token], name) == (word, name)
    assert word_of(builder, [token], None) == (word, name)
    assert word_of(builder, [token], "another class") == (word, OTHER)
    assert word_of(builder, [builder.end_token], name) == ("", OTHER)
    assert word_of(builder, [builder.prefix[1], builder.end_token], None)[1] == "text"


def test_an_evaluation_is_of_the_live_version(session: Session, builder: TokenBuilder) -> None:
    token, (name, word) = next(iter(builder.answers.items()))
    query = StandingQuery("q", "*", "What is the trend?", "change", class_=name)
    event = build_evaluation(query, session, ready(token))
    assert (event.session, event.query, event.answer, event.class_) == ("^GSPC", "q", word, name)
    assert (event.session_version, event.offset, event.event_time) == (40, 39, "1970-01-01T00:39:00Z")


def test_evidence_flags_and_pushed_sessions(session: Session, builder: TokenBuilder) -> None:
    assert evidence_of(session, 1).flags is StateFlag.NONE
    session.gap_end = 1_000_000
    assert evidence_of(session, 1).flags is StateFlag.INCOMPLETE
    session.region.bars = session.region.bars[:5]
    session.move_to(session.settled_state())
    assert evidence_of(session, 1).flags == StateFlag.WARMING_UP | StateFlag.INCOMPLETE
    pushed = evidence_of(Session("agent", builder), -1)
    assert (pushed.topic_index, pushed.partition, pushed.offset, pushed.event_time_us) == (-1, -1, -1, NO_TIME)
