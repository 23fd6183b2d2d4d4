"""Who gives up its cells: the session that was asked least recently, whatever order they came in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import Answer, Record, StandingPut

TREND = "What is the trend?"
KEYS = ("A", "B", "C", "D")


@pytest.fixture
def bench(fed: Callable[..., Any]) -> Any:
    """Cells for three of four sessions; the fourth has tokens only."""
    bench = fed(KEYS, bars=40, sessions=3)
    assert bench.engine.budget.resident == ("A", "B", "C")
    return bench


def asked(bench: Any, key: str) -> None:
    reply = bench.ask(key, TREND, path="full")
    assert isinstance(reply, Answer)
    assert reply.gap == bench.expected(key, TREND).gap


def test_a_question_puts_its_session_last(bench: Any) -> None:
    asked(bench, "A")
    assert bench.engine.budget.resident == ("B", "C", "A")
    asked(bench, "D")
    assert bench.engine.budget.resident == ("C", "A", "D")
    asked(bench, "C")
    asked(bench, "B")
    assert bench.engine.budget.resident == ("D", "C", "B")


def test_a_standing_query_is_asked_at_every_commit(bench: Any, make_record: Callable[..., Record]) -> None:
    bench.engine.register(StandingPut("A", TREND))
    bench.engine.run_until_idle()
    assert bench.engine.budget.resident == ("B", "C", "A")
    asked(bench, "B")
    asked(bench, "C")
    bench.feed([make_record("A", 160, 40)], 159)
    assert bench.engine.budget.resident == ("B", "C", "A")
    asked(bench, "D")
    assert bench.engine.budget.resident == ("C", "A", "D")


def test_data_alone_is_no_use(bench: Any, make_record: Callable[..., Record]) -> None:
    """Else the busiest symbol, which nobody asks about, would keep its cells."""
    bench.feed([make_record("A", 160, 40), make_record("A", 161, 41)], 159)
    assert bench.engine.budget.resident == ("A", "B", "C")
    asked(bench, "D")
    assert bench.engine.budget.resident == ("B", "C", "D")
