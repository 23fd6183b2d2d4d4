"""Sessions without cells: what is ready stays so, and what is due is computed in cells that are nobody's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.gate import Gate
from stream_engine.decision.reading import Miss
from stream_engine.messages import Answer, AnswerChanged, ErrorReply, Query, Record, StandingPut
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.session.session import SessionState
from tests.support.checks import TREND, word_token

KEYS = ("A", "B", "C")


@pytest.fixture
def evicted(fed: Callable[..., Any]) -> Callable[..., Any]:
    """A bench of three sessions with cells for two, where ``A`` has lost its own to a question about ``C``."""

    def make(**options: Any) -> Any:
        bench = fed(KEYS, **{"bars": 40, "sessions": 2, **options})
        bench.ask("C", TREND, path="full")
        assert set(bench.engine.budget.resident) == {"B", "C"}
        assert bench.engine.sessions["A"].state is SessionState.EVICTED
        return bench

    return make


def certain(bench: Any) -> None:
    """From now on the gate lets every distribution through."""
    real, up = bench.runner.predict, word_token(bench, "up")

    def predict(path: Sequence[int]) -> Distribution:
        logits = real(path)
        return replace(logits, top1=up, gap=5 + logits.gap)

    bench.runner.predict = predict


def bar(bench: Any, make_record: Callable[..., Record], *keys: str, run: bool = True) -> None:
    """One more bar of each."""
    follows = bench.engine.ingest.partitions.all()[0].taken
    # Also of records that wait: later than any that this test has sent.
    records = [make_record(key, follows + 1 + n, follows + 1 + n) for n, key in enumerate(keys)]
    bench.feed(records, follows, run=run)


def test_a_hundred_symbols_on_cells_for_64_answer_fast_after_each_commit(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    keys = tuple(f"S{number:02}" for number in range(100))
    cells = 64
    bench = fed(keys, bars=33, sessions=cells)
    certain(bench)
    for round_ in range(3):
        bar(bench, make_record, *keys)
        for key in keys:
            answer = bench.ask(key, TREND)
            assert isinstance(answer, Answer)
            assert (answer.path, answer.state) == ("fast", "LIVE"), f"{key}, round {round_}"
            assert answer.session_version == bench.engine.sessions[key].version
        assert len(bench.engine.budget.resident) == cells
        for key in keys[::7]:  # some are asked what only the full path tells, and take others' cells
            assert bench.ask(key, TREND, path="full").path != "fast"
    assert bench.engine.counters.evictions_total > 0
    for key in keys:
        assert bench.engine.sessions[key].ready[""].gap == bench.expected(key).gap


def test_pre_positions_evict_nobody(fed: Callable[..., Any], make_record: Callable[..., Record]) -> None:
    bench = fed(KEYS, bars=40, sessions=2)
    for _ in range(3):
        bar(bench, make_record, *KEYS)
    assert bench.engine.budget.resident == ("A", "B")
    assert bench.engine.counters.evictions_total == 0
    assert bench.engine.sessions["C"].ready[""].gap == bench.expected("C").gap


@pytest.mark.parametrize("mode", ["fused", "idle"])
def test_what_is_ready_outlives_the_cells_until_the_next_change(
    mode: str, evicted: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = evicted(preposition=mode)
    session = bench.engine.sessions["A"]
    ready, steps = dict(session.ready), len(bench.runner.steps)
    assert ready[""].gap == bench.expected("A").gap
    answer = bench.ask("A", TREND, path="fast")
    assert isinstance(answer, Answer)
    assert (answer.path, answer.state, answer.gap) == ("fast", "LIVE", ready[""].gap)
    start = bench.engine.ingest.partitions.all()[0].applied
    bench.feed([make_record("A", start, index=-5)], start - 1)  # late: it changes nothing
    assert (session.ready, len(bench.runner.steps)) == (ready, steps)
    bar(bench, make_record, "A", run=False)
    assert bench.engine.step()
    assert session.ready == {}
    assert isinstance(bench.ask("A", TREND, path="fast"), Answer | ErrorReply)
    bench.engine.run_until_idle()
    assert session.ready[""].gap == bench.expected("A").gap


def test_a_short_window_is_still_too_short_without_cells(evicted: Callable[..., Any]) -> None:
    bench = evicted(bars=10)
    assert "" in bench.engine.sessions["A"].ready
    assert isinstance(bench.ask("A", TREND, path="fast"), ErrorReply)
    answer = bench.ask("A", TREND)
    assert isinstance(answer, Answer)
    assert (answer.path, answer.state, answer.gap) == ("cold", "WARMING_UP", bench.expected("A", TREND).gap)


def test_a_commit_without_cells_is_answered_right_before_any_idle_time(
    evicted: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = evicted()
    bar(bench, make_record, *KEYS, run=False)
    bench.engine.queries.ask(Query("A", TREND, "full"), bench.replies.append)
    bench.engine.run_until_idle()
    bar(bench, make_record, *KEYS, run=False)
    assert bench.engine.step()
    for key in KEYS:
        answer = bench.ask(key, TREND, path="full")
        assert isinstance(answer, Answer)
        assert answer.gap == bench.expected(key, TREND).gap
        assert answer.session_version == bench.engine.sessions[key].version
    bench.engine.check_integrity()


def test_data_goes_before_the_workbench_and_it_goes_on_from_what_it_has(
    evicted: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = evicted(step_tokens=16)
    bar(bench, make_record, "A", run=False)
    shape, session = bench.shape, bench.engine.sessions["A"]
    while bench.runner.steps[-1][0].base != shape.bench_base:
        assert bench.engine.step()
    bar(bench, make_record, "A", "B", run=False)
    assert bench.engine.step()
    assert bench.runner.steps[-1][0].base != shape.bench_base
    bench.engine.run_until_idle()
    assert session.ready[""].gap == bench.expected("A").gap
    before = len(bench.runner.steps)
    bar(bench, make_record, "A")
    steps = bench.runner.steps[before:]
    assert [len(step[0].append) for step in steps] == [bench.builder.tokens_per_bar], "the rest lies there still"
    assert session.ready[""].gap == bench.expected("A").gap
    bench.engine.check_integrity()


def test_a_late_record_of_a_session_without_cells_leaves_it_in_order(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(KEYS, bars=40, sessions=2)
    bench.engine.drop_session(bench.engine.sessions["A"])  # cells are free, and C has none
    follows = bench.engine.ingest.partitions.all()[0].taken
    bench.feed([make_record("C", follows + 1, index=-5)], follows)
    assert bench.engine.sessions["C"].ready[""].gap == bench.expected("C").gap
    answer = bench.ask("C", TREND, path="full")
    assert isinstance(answer, Answer)
    assert answer.gap == bench.expected("C", TREND).gap
    bench.engine.check_integrity()


def test_a_late_record_takes_nobodys_cells_though_a_standing_query_would(
    evicted: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = evicted()
    bench.engine.register(StandingPut("A", TREND, id="q0"))
    bench.engine.run_until_idle()
    for key in "BC":
        bench.ask(key, TREND, path="full")
    assert set(bench.engine.budget.resident) == {"B", "C"}
    evictions, steps = bench.engine.counters.evictions_total, len(bench.runner.steps)
    start = bench.engine.ingest.partitions.all()[0].applied
    acks = bench.feed([make_record("A", start, index=-5)], start - 1)
    assert [rejected.reason for rejected in acks[0].rejected] == ["late"]
    assert (bench.engine.counters.evictions_total, len(bench.runner.steps)) == (evictions, steps)
    assert set(bench.engine.budget.resident) == {"B", "C"}
    bar(bench, make_record, "A")
    assert "A" in bench.engine.budget.resident, "a record that changes something is a demand"


def test_without_pre_positions_nothing_is_computed_ahead(
    evicted: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = evicted(preposition="off")
    steps = len(bench.runner.steps)
    bar(bench, make_record, "A")
    assert len(bench.runner.steps) == steps
    assert bench.engine.sessions["A"].ready == {}


def test_a_standing_query_whose_question_is_ready_is_answered_without_cells(evicted: Callable[..., Any]) -> None:
    bench = evicted()
    bench.engine.register(StandingPut("A", TREND, id="q0"))
    bench.engine.run_until_idle()
    for key in "BC":
        bench.ask(key, TREND, path="full")
    assert "A" not in bench.engine.budget.resident
    steps = len(bench.runner.steps)
    bench.engine.register(StandingPut("A", TREND, id="q1"))
    bench.engine.run_until_idle()
    assert len(bench.runner.steps) == steps
    told = [(event.query, event.initial) for event in bench.events if isinstance(event, AnswerChanged)]
    assert told == [("q0", True), ("q1", True)]
    assert bench.engine.sessions["A"].ready[TREND].gap == bench.expected("A", TREND).gap


def test_a_deleted_session_without_cells_is_on_no_board(
    evicted: Callable[..., Any], builder: TokenBuilder, tmp_path: Path
) -> None:
    meta = board_meta(builder.profile, Gate({}, {}, 0.0))
    board = BoardWriter.create(tmp_path / "board", meta, 16, 64, 1, 60.0)
    reader = BoardReader.open(tmp_path / "board", 0)
    bench = evicted(board=board)
    assert not isinstance(reader.read("A", ""), Miss)
    bench.engine.drop_session(bench.engine.sessions["A"])
    assert isinstance(reader.read("A", ""), Miss)
    board.close()


def test_on_change_queries_of_more_sessions_than_one_step_has_cells_miss_no_version(
    fed: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    bench = fed(KEYS, bars=40, sessions=1)
    bench.engine.register(StandingPut("*", TREND))
    bench.engine.run_until_idle()
    bar(bench, make_record, *KEYS)
    newest = {answer.session: answer.session_version for answer in bench.engine.standing.answers(None, None)}
    assert newest == {key: bench.engine.sessions[key].version for key in KEYS}
