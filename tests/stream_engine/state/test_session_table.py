"""The sessions, and a way through them that copies nothing."""

from __future__ import annotations

from stream_engine.model.render.builder import TokenBuilder
from stream_engine.state.session_table import SPARE, SessionTable


def test_a_way_through_the_sessions_meets_those_that_were_there_whatever_comes_and_goes(
    builder: TokenBuilder,
) -> None:
    table = SessionTable(builder)
    for number in range(3 * SPARE):
        table.open(f"S{number}")
    way = table.names()
    met = [next(way) for _ in range(SPARE)]
    for number in range(3 * SPARE):
        table.open(f"later{number}")
        if number % 2:
            table.remove(table[f"S{number}"])
    for number in range(0, 3 * SPARE, 2):
        table.remove(table[f"S{number}"])
    table.open("last")
    met += way
    assert met == [f"S{number}" for number in range(3 * SPARE)]
    assert set(table.names()) >= set(table)


def test_names_of_sessions_that_are_gone_do_not_pile_up(builder: TokenBuilder) -> None:
    table = SessionTable(builder)
    for number in range(100 * SPARE):
        table.remove(table.open(f"S{number}"))
    table.open("last")
    assert len(list(table.names())) <= SPARE + 4
