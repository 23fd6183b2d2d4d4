"""The engine's answers on a fake model: paths, gate, freshness, standing queries, tool results."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stream_engine.answering import full_path
from stream_engine.answering import query_desk as queries
from stream_engine.messages import (
    Answer,
    AnswerChanged,
    ErrorReply,
    OffsetBound,
    Query,
    Record,
    StandingPut,
)

TOPIC = "market.bars"
TREND = "What is the trend?"


def test_standing_queries_ride_and_report_changes(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(bars=40)
    query = bench.engine.register(StandingPut("AA*", TREND))
    assert query.session == "AA*"
    bench.engine.run_until_idle()
    first = [e for e in bench.events if isinstance(e, AnswerChanged)]
    assert [e.initial for e in first] == [True]
    for offset in range(40, 60):
        bench.feed([make_record("AAPL", offset)], offset - 1)
    changes = [e for e in bench.events if isinstance(e, AnswerChanged)]
    assert len(changes) > 1
    for before, after in itertools.pairwise(changes):
        assert after.previous == before.answer != after.answer
        assert after.session_version > before.session_version
    exact = bench.ask("AAPL", TREND)
    assert isinstance(exact, Answer)
    assert (exact.path, exact.tau) == ("fast", None)
    assert exact.gap == bench.expected("AAPL", TREND).gap
    assert bench.engine.unregister(query.id)
    assert not bench.engine.unregister(query.id)
    assert TREND not in bench.engine.sessions["AAPL"].ready


def test_on_commit_reports_every_commit(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = fed(bars=40)
    bench.engine.register(StandingPut("AAPL", TREND, "commit"))
    bench.engine.run_until_idle()
    bench.events.clear()
    for offset in range(40, 50):
        bench.feed([make_record("AAPL", offset)], offset - 1)
    assert [e.session_version for e in bench.events if isinstance(e, AnswerChanged)] == list(range(41, 51))


@pytest.mark.parametrize("path", ["fast", "full"])
def test_latency_is_from_the_question_to_its_answer_in_microseconds(
    path: Any, fed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = fed(bars=40)
    now = [5_000.0]
    run = bench.runner.run

    def slow(segments: Any) -> Any:
        now[0] += 0.25
        return run(segments)

    bench.runner.run = slow
    for module in (queries, full_path):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns))
    bench.engine.queries.ask(Query("AAPL", TREND, path), bench.replies.append)
    now[0] += 0.5  # it waits for its turn, where it needs one
    bench.engine.run_until_idle()
    (answer,) = bench.replies
    assert isinstance(answer, Answer)
    assert answer.latency_us == (0 if path == "fast" else 750_000)


@pytest.mark.parametrize("path", ["fast", "full"])
def test_latency_counts_the_wait_for_a_record_that_was_asked_for(
    path: Any, fed: Callable[..., Any], make_record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the question, not from when its bound was met and it was queued for a step."""
    bench = fed(bars=40)
    now = [5_000.0]
    for module in (queries, full_path):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns))
    query = Query("AAPL", TREND, path, min_offset=OffsetBound(0, 40), wait_ms=60_000)
    bench.engine.queries.ask(query, bench.replies.append)
    now[0] += 2.0
    bench.feed([make_record("AAPL", 40)], 39)
    bench.engine.run_until_idle()
    (answer,) = bench.replies
    assert isinstance(answer, Answer)
    assert answer.latency_us == 2_000_000


def test_reads_its_own_write(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = fed(bars=40)
    bench.engine.queries.ask(
        Query("AAPL", TREND, min_offset=OffsetBound(0, 40), wait_ms=60_000), bench.replies.append
    )
    bench.engine.run_until_idle()
    assert not bench.replies
    bench.feed([make_record("AAPL", 40)], 39)
    bench.engine.run_until_idle()
    (answer,) = bench.replies
    assert isinstance(answer, Answer)
    assert answer.offset == 40


@pytest.mark.parametrize(
    ("bounds", "what"),
    [
        ({"min_version": 99}, "min_version"),
        ({"min_offset": OffsetBound(0, 99)}, "min_offset"),
        ({"min_offset": OffsetBound(7, 1)}, "not owned"),
        ({"max_age_ms": 1}, "max_age_ms"),
    ],
)
def test_unmet_freshness_is_a_conflict(fed: Callable[..., Any], bounds: dict[str, Any], what: str) -> None:
    reply = fed(bars=40).ask("AAPL", TREND, **bounds)
    assert isinstance(reply, ErrorReply)
    assert (reply.status, reply.kind) == (409, "freshness_not_met")
    assert what in reply.message


def test_fast_path_full_path_and_gate(fed: Callable[..., Any]) -> None:
    bench = fed(bars=40)
    expected = bench.expected("AAPL")
    fires = bench.gate.decide(bench.engine.sessions["AAPL"].ready[""], "trend").fires
    answer = bench.ask("AAPL", TREND)
    assert isinstance(answer, Answer)
    assert (answer.path == "fast") is fires
    forced = bench.ask("AAPL", TREND, path="fast")
    assert isinstance(forced, Answer)
    assert (forced.path, forced.gate, forced.gap) == ("fast", fires, expected.gap)
    full = bench.ask("AAPL", TREND, path="full")
    assert isinstance(full, Answer)
    assert full.gap == bench.expected("AAPL", TREND).gap
    # Where the gate holds the first question back, that one has left its branch behind.
    assert full.path == ("cold" if fires else "fallthrough")
    assert (full.gate, full.entry_tokens) == (None, len(bench.builder.query_entry(TREND)))


def test_a_repeated_question_falls_through_to_its_resident_branch(fed: Callable[..., Any]) -> None:
    bench = fed(bars=40)
    first = bench.ask("AAPL", TREND, path="full")
    again = bench.ask("AAPL", TREND, path="full")
    other = bench.ask("AAPL", "What is the momentum?", path="full")
    assert isinstance(first, Answer)
    assert isinstance(again, Answer)
    assert isinstance(other, Answer)
    assert (first.path, first.reused_tokens) == ("cold", 0)
    assert (again.path, again.reused_tokens) == ("fallthrough", again.entry_tokens - 1)
    assert again.gap == first.gap
    # "What is the" is shared with the branch that the first question left behind.
    assert (other.path, 0 < other.reused_tokens < other.entry_tokens) == ("fallthrough", True)
    assert other.gap == bench.expected("AAPL", "What is the momentum?").gap


def test_questions_of_no_class_are_refused_with_what_can_be_asked(fed: Callable[..., Any]) -> None:
    reply = fed(bars=40).ask("AAPL", "What is the price?")
    assert isinstance(reply, ErrorReply)
    assert (reply.status, reply.code, reply.param) == (422, "question_not_supported", "question")
    assert "trend (up/down/flat)" in reply.message


def test_tool_envelope_is_predecoded_and_the_turn_resumes_on_its_delta(make_bench: Callable[..., Any]) -> None:
    bench = make_bench()
    engine, builder = bench.engine, bench.builder
    call = builder.tool_payload("lookup AAPL")
    engine.append_turn("agent", call)
    engine.run_until_idle()
    engine.await_tool("agent")
    engine.run_until_idle()  # the tool is busy; the engine is not
    session = engine.sessions["agent"]
    assert session.ready["tool"].gap == bench.runner.predict([*session.tokens, *builder.tool_envelope]).gap
    ran = len(bench.runner.steps)
    payload = "172.5 and rising"
    reused = engine.resume_tool("agent", payload)
    assert reused == len(builder.tool_envelope)
    engine.run_until_idle()
    (segment,) = bench.runner.steps[ran]
    assert segment.append == builder.tool_payload(payload)  # the delta, and nothing of the envelope
    assert session.tokens == [*builder.prefix, *call, *builder.tool_envelope, *builder.tool_payload(payload)]
    assert session.ready[""].gap == bench.runner.predict([*session.tokens, *builder.generic_entry]).gap
