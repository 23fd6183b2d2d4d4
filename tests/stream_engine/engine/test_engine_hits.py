"""Hits of the engine's own: questions that it answers itself count as those of the API processes do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.board.writer import BoardWriter
from stream_engine.messages import Record, StandingPut

TREND = "What is the trend?"
OTHER_WORDING = "Which way is it going?"
MOMENTUM = "What is the momentum?"


@pytest.fixture
def counted(board: BoardWriter, make_record: Callable[..., Record]) -> Callable[..., tuple[int, int]]:
    """Hits and wasted pre-positions that one more commit settles, after ``ask``."""

    def settle(bench: Any, ask: Callable[[], object]) -> tuple[int, int]:
        offset = bench.engine.sessions["AAPL"].version
        before = board.counters()
        ask()
        bench.feed([make_record("AAPL", offset)], offset - 1)
        after = board.counters()
        return after.hits - before.hits, after.wasted - before.wasted

    return settle


def test_whoever_reads_the_header_hits_it(
    planted: Callable[..., Any], board: BoardWriter, counted: Callable[..., tuple[int, int]]
) -> None:
    bench = planted("up", "up", board=board)
    assert counted(bench, lambda: None) == (0, 1)
    assert counted(bench, lambda: bench.ask("AAPL", TREND)) == (1, 0)
    assert counted(bench, lambda: bench.ask("AAPL", TREND, path="fast")) == (1, 0)
    assert counted(bench, lambda: [bench.ask("AAPL", OTHER_WORDING) for _ in range(3)]) == (1, 0)
    assert bench.engine.counters.answers_fast_total == 5


def test_a_read_that_the_gate_holds_back_is_a_hit_as_well(
    fed: Callable[..., Any], board: BoardWriter, counted: Callable[..., tuple[int, int]]
) -> None:
    """Eq. 8 counts what was read while valid, whether or not the gate fired."""
    bench = fed(bars=40, board=board)
    bench.engine.gate_control.apply({name: type(gate)(1e9) for name, gate in bench.gate.classes.items()})
    assert counted(bench, lambda: bench.ask("AAPL", TREND)) == (1, 0)
    assert bench.engine.counters.answers_fast_total == 0


def test_the_full_path_and_questions_of_other_classes_read_nothing(
    planted: Callable[..., Any], board: BoardWriter, counted: Callable[..., tuple[int, int]]
) -> None:
    bench = planted("up", "up", board=board)
    assert counted(bench, lambda: bench.ask("AAPL", TREND, path="full")) == (0, 1)
    assert counted(bench, lambda: bench.ask("AAPL", MOMENTUM)) == (0, 1)


def test_a_standing_querys_own_distribution_is_hit_and_the_header_is_not(
    planted: Callable[..., Any], board: BoardWriter, counted: Callable[..., tuple[int, int]]
) -> None:
    bench = planted("up", "up", board=board)
    bench.engine.register(StandingPut("AAPL", TREND))
    bench.engine.run_until_idle()
    assert counted(bench, lambda: bench.ask("AAPL", TREND)) == (1, 1)
    assert counted(bench, lambda: bench.ask("AAPL", OTHER_WORDING)) == (1, 1)
    assert counted(bench, lambda: [bench.ask("AAPL", text) for text in (TREND, OTHER_WORDING)]) == (2, 0)
