"""Turns: bounded by the share, live as soon as they are taken, and no reason to take cells from anybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.engine.agentic import TurnRefused
from stream_engine.messages import Answer, ErrorReply, Query, Record
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.session.session import ResidentBranch, SecondSlab
from tests.support.checks import TREND


def turn(bench: Any, text: str) -> tuple[int, ...]:
    tokens: tuple[int, ...] = bench.builder.tool_payload(text)
    return tokens


def filled(bench: Any, session: str) -> None:
    """The session's log ends where its share's room for a log does."""
    room = bench.shape.headroom(len(bench.engine.sessions[session].tokens))
    bench.engine.append_turn(session, turn(bench, "x" * 2 * room)[:room])
    bench.engine.run_until_idle()


def test_a_turn_leaves_nothing_of_the_version_before_it_to_be_read(
    make_bench: Callable[..., Any], board: BoardWriter, reader: BoardReader
) -> None:
    bench = make_bench(board=board)
    bench.engine.append_turn("agent", turn(bench, "hello"))
    bench.engine.run_until_idle()
    assert isinstance(reader.read("agent", ""), ReadySlot)
    session = bench.engine.append_turn("agent", turn(bench, "and then"))
    assert (session.version, session.ready, session.branches) == (2, {}, [])
    assert not isinstance(reader.read("agent", ""), ReadySlot)
    bench.engine.queries.ask(Query("agent", TREND, "fast"), bench.replies.append)
    assert isinstance(bench.replies[-1], ErrorReply)
    bench.engine.run_until_idle()
    slot = reader.read("agent", "")
    assert isinstance(slot, ReadySlot)
    assert (slot.evidence.session_version, slot.ready.gap) == (2, bench.expected("agent").gap)


def test_a_turn_that_does_not_fit_is_refused_before_a_token_is_written(make_bench: Callable[..., Any]) -> None:
    bench = make_bench()
    engine = bench.engine
    for name in ("agent", "neighbour"):
        engine.append_turn(name, turn(bench, "hello"))
    engine.run_until_idle()
    filled(bench, "agent")
    session, answer = engine.sessions["agent"], bench.ask("agent", TREND, path="full")
    before = (list(session.tokens), session.version, dict(session.ready), list(bench.runner.cells))
    with pytest.raises(TurnRefused, match="a turn of 1 tokens has no room"):
        engine.append_turn("agent", turn(bench, "y")[:1])
    engine.run_until_idle()
    assert before == (session.tokens, session.version, session.ready, bench.runner.cells)
    assert isinstance(answer, Answer)
    assert answer.gap == bench.expected("agent", TREND).gap
    for name in ("neighbour", "agent"):
        assert bench.ask(name, TREND, path="full").gap == bench.expected(name, TREND).gap
    engine.check_integrity()


def test_a_first_turn_that_does_not_fit_opens_no_session(make_bench: Callable[..., Any]) -> None:
    bench = make_bench()
    with pytest.raises(TurnRefused):
        bench.engine.append_turn("agent", turn(bench, "x" * bench.shape.share))
    assert bench.engine.sessions == {}


def test_a_tool_result_that_does_not_fit_is_refused_and_a_shorter_one_taken(
    make_bench: Callable[..., Any],
) -> None:
    bench = make_bench()
    engine = bench.engine
    engine.append_turn("agent", turn(bench, "lookup"))
    engine.await_tool("agent")
    engine.run_until_idle()
    session = engine.sessions["agent"]
    tokens = list(session.tokens)
    with pytest.raises(TurnRefused):
        engine.resume_tool("agent", "x" * bench.shape.share)
    assert (session.tokens, session.version, session.awaiting_tool, "tool" in session.ready) == (
        tokens,
        1,
        True,
        True,
    )
    assert engine.resume_tool("agent", "172.5") == len(bench.builder.tool_envelope)
    assert (session.version, session.awaiting_tool, session.ready) == (2, False, {})
    engine.run_until_idle()
    assert session.ready[""].gap == bench.expected("agent").gap
    engine.check_integrity()


def test_a_waiting_tool_takes_no_cells_from_anybody(fed: Callable[..., Any]) -> None:
    bench = fed(("A", "B"), bars=40, sessions=2)
    engine = bench.engine
    engine.append_turn("agent", turn(bench, "lookup"))
    engine.await_tool("agent")
    engine.append_turn("agent", turn(bench, "lookup again"))
    engine.run_until_idle()
    assert engine.budget.resident == ("A", "B")
    assert engine.counters.evictions_total == 0
    assert engine.resume_tool("agent", "172.5") == 0  # nothing was decoded ahead; the turn is right all the same
    engine.run_until_idle()
    answer = bench.ask("agent", TREND, path="full")  # a question is a demand
    assert isinstance(answer, Answer)
    assert answer.gap == bench.expected("agent", TREND).gap


def test_turns_are_for_pushed_sessions_that_are_there(fed: Callable[..., Any]) -> None:
    engine = fed(bars=40).engine
    tokens = list(engine.sessions["AAPL"].tokens)
    with pytest.raises(TurnRefused, match=r"fed by market\.bars/0"):
        engine.append_turn("AAPL", (1, 2))
    for call in (lambda: engine.await_tool("nobody"), lambda: engine.resume_tool("nobody", "1")):
        with pytest.raises(TurnRefused, match="no session 'nobody'"):
            call()
    assert (engine.sessions["AAPL"].tokens, engine.sessions["AAPL"].version) == (tokens, 40)


@pytest.mark.parametrize("words", [1, 3])
def test_an_answer_of_several_tokens_under_way_begins_anew_on_the_new_turn(
    words: int,
    make_bench: Callable[..., Any],
    builder: TokenBuilder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(builder, "profile", replace(builder.profile, max_answer_tokens=4))
    bench = make_bench()
    engine = bench.engine
    spoken = builder.query_entry(TREND)[0]  # no word of an answer: the answer goes on until it may not
    real = bench.runner.predict
    bench.runner.predict = lambda path: replace(real(path), top1=spoken)
    engine.append_turn("agent", turn(bench, "hello"))
    engine.run_until_idle()
    engine.queries.ask(Query("agent", TREND, "full"), bench.replies.append)
    for _ in range(words):
        assert engine.step()
    assert len(engine.scheduler.queries[0].generated) == words
    engine.append_turn("agent", turn(bench, "another thing"))
    engine.run_until_idle()
    (answer,) = bench.replies
    assert isinstance(answer, Answer)
    assert (answer.session_version, answer.gap) == (2, bench.expected("agent", TREND).gap)
    assert engine.sessions["agent"].ready[""].gap == bench.expected("agent").gap
    engine.check_integrity()


def test_a_turn_taken_in_the_middle_of_a_commit_is_of_that_commit(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(step_tokens=16)
    bench.engine.append_turn("agent", turn(bench, "a long turn that needs several steps"))
    assert bench.engine.step()
    session = bench.engine.append_turn("agent", turn(bench, "and goes on"))
    bench.engine.run_until_idle()
    bench.engine.check_integrity()
    assert session.ready[""].gap == bench.expected("agent").gap


# --- what the integrity check sees -----------------------------------------------------------------------


def overlap(bench: Any) -> None:
    extents = bench.engine.budget._resident
    extents["B"] = extents["A"]


def too_long(bench: Any) -> None:
    session = bench.engine.sessions["agent"]
    session.append_turn(turn(bench, "x" * bench.shape.share))


def scratch_beyond(bench: Any) -> None:
    bench.engine.sessions["A"].scratch_end = bench.shape.share + 1


def scratch_in_the_second_slab(bench: Any) -> None:
    session = bench.engine.sessions["A"]
    session.second = SecondSlab([*session.tokens][:40], 40)
    session.scratch_end = bench.shape.share - 1


def scratch_inside(bench: Any) -> None:
    bench.engine.sessions["A"].scratch_end -= len(bench.builder.generic_entry) + 1
    bench.engine.sessions["A"].branches.clear()


def branches_without_cells(bench: Any) -> None:
    bench.engine.budget.release("A")
    session = bench.engine.sessions["A"]
    session.resident, session.branches = 0, [ResidentBranch((1,), 0)]
    session.scratch_end = 1


def stale_on_the_board(bench: Any) -> None:
    """A turn that forgot the board, and one that forgot nothing else."""
    bench.engine.sessions["agent"].append_turn((1,))


def stale_version(bench: Any) -> None:
    bench.engine.sessions["A"].version += 1


def stale_tokens(bench: Any) -> None:
    session = bench.engine.sessions["agent"]
    session.tokens[-1] = session.turns[-1] = session.tokens[-1] + 1


def stale_here(bench: Any) -> None:
    ready: dict[str, ReadyDistribution] = bench.engine.sessions["A"].ready
    ready[""] = replace(ready[""], position=ready[""].position - 1)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (overlap, "slabs are lost, shared"),
        (too_long, "no room in its slab"),
        (scratch_beyond, "scratch cells up to"),
        (scratch_in_the_second_slab, "scratch cells up to"),
        (scratch_inside, "scratch cells inside the live ones"),
        (branches_without_cells, "branches without an extent"),
        (stale_on_the_board, "on the board and not ready here"),
        (stale_version, "on the board is of version"),
        (stale_tokens, "on the board is of other tokens"),
        (stale_here, "is ready at"),
    ],
)
def test_the_integrity_check_sees_it(
    fault: Callable[[Any], None], told: str, fed: Callable[..., Any], board: BoardWriter
) -> None:
    bench = fed(("A", "B"), bars=40, board=board)
    bench.engine.append_turn("agent", turn(bench, "hello"))
    bench.engine.run_until_idle()
    bench.engine.check_integrity()
    fault(bench)
    with pytest.raises(AssertionError, match=told):
        bench.engine.check_integrity()


def test_records_that_change_nothing_leave_the_turns_of_others_alone(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(bars=40)
    bench.engine.append_turn("agent", turn(bench, "hello"))
    bench.engine.run_until_idle()
    ready = dict(bench.engine.sessions["agent"].ready)
    bench.feed([make_record("AAPL", 40)], 39)
    assert bench.engine.sessions["agent"].ready == ready
