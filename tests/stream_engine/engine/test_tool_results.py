"""A tool's result moves the session: nothing that was decoded before it is served after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.reading import Miss
from stream_engine.messages import Answer, ErrorReply, Query
from stream_engine.session.token_hash import token_hash

TREND = "What is the trend?"


@pytest.fixture
def waiting(make_bench: Callable[..., Any], board: BoardWriter) -> Any:
    """An agent that waits for a tool, with all its decision points decoded."""
    bench = make_bench(board=board)
    bench.engine.append_turn("agent", bench.builder.tool_payload("lookup AAPL"))
    bench.engine.run_until_idle()
    bench.engine.await_tool("agent")
    bench.engine.run_until_idle()
    return bench


def test_a_resumed_session_has_nothing_ready_until_its_next_step(waiting: Any, reader: BoardReader) -> None:
    session = waiting.engine.sessions["agent"]
    before = reader.read("agent", "")
    assert isinstance(before, ReadySlot)
    assert isinstance(reader.read("agent", "tool"), ReadySlot)
    waiting.engine.resume_tool("agent", "172.5 and rising")
    assert session.ready == {}
    assert session.branches == []
    assert session.scratch_end == session.resident
    assert reader.read("agent", "") is Miss.INVALID
    assert reader.read("agent", "tool") is Miss.INVALID
    waiting.engine.run_until_idle()
    after = reader.read("agent", "")
    assert isinstance(after, ReadySlot)
    assert after.evidence.session_version == session.version > before.evidence.session_version
    assert after.token_hash == token_hash(session.tokens, waiting.builder.generic_entry)
    assert isinstance(reader.read("agent", "tool"), Miss), "it waits for no tool any more"


@pytest.mark.parametrize("path", ["auto", "fast", "full"])
def test_a_question_right_after_the_result_is_not_answered_from_before_it(path: Any, waiting: Any) -> None:
    """Whether it is asked before or after the step that commits the result."""
    waiting.engine.resume_tool("agent", "172.5 and rising")
    waiting.engine.queries.ask(Query("agent", TREND, path), waiting.replies.append)
    waiting.engine.run_until_idle()
    (reply,) = waiting.replies
    session = waiting.engine.sessions["agent"]
    if isinstance(reply, ErrorReply):
        assert (path, reply.status) == ("fast", 409)
        return
    assert isinstance(reply, Answer)
    assert path != "fast"
    assert reply.gap == waiting.expected("agent", TREND).gap
    base = waiting.engine.budget.base_of("agent")
    assert waiting.runner.cells[base : base + session.resident] == session.tokens


def test_a_result_that_comes_before_its_envelope_was_decoded_is_exact_as_well(make_bench: Any) -> None:
    bench = make_bench()
    bench.engine.append_turn("agent", bench.builder.tool_payload("lookup AAPL"))
    bench.engine.run_until_idle()
    bench.engine.await_tool("agent")
    assert bench.engine.resume_tool("agent", "12") < len(bench.builder.tool_envelope)
    bench.engine.run_until_idle()
    session = bench.engine.sessions["agent"]
    assert session.ready[""].gap == bench.expected("agent").gap
    bench.engine.check_integrity()
