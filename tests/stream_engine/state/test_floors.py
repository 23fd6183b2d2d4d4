"""The lowest floor is found without a look at all, and is always the one that a look at all would find."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_engine.state.floors import Floors

NAMES = "ABCDE"


def session(name: str, floor: int | None = None, due: bool = False) -> Any:
    return SimpleNamespace(id=name, floor=floor, window_due=due)


steps = st.tuples(st.sampled_from(NAMES), st.sampled_from(["fed", "fed", "window", "gone", "ask"]))


@settings(deadline=None)
@given(st.lists(steps, max_size=80))
def test_the_lowest_floor_is_the_least_of_all(taken: list[tuple[str, str]]) -> None:
    """As sessions do it: the first record behind a window sets the floor, the next window takes it away, and a
    session that is gone may come back as another one. Offsets only grow."""
    floors, fed = Floors(), {}
    for offset, (name, what) in enumerate(taken):
        if what == "fed":
            member = fed.setdefault(name, session(name))
            if member.floor is None:
                member.floor = offset
            floors.note(member)
        elif what == "window" and name in fed:
            fed[name].floor = None
            floors.note(fed[name])
        elif what == "gone" and name in fed:
            del fed[name]
            floors.forget(name)
        if what == "ask":
            expected = min((member.floor for member in fed.values() if member.floor is not None), default=None)
            lowest = floors.lowest()
            assert (None if lowest is None else lowest.floor) == expected


def test_entries_that_are_out_of_date_do_not_pile_up_behind_one_that_stays() -> None:
    floors, quiet, busy = Floors(), session("A", 0), session("B")
    floors.note(quiet)
    for offset in range(1, 1_000):
        busy.floor = offset
        floors.note(busy)
        busy.floor = None
        floors.note(busy)
        assert floors.lowest() is quiet
        assert len(floors) <= 2 * 2 + 64


def test_each_due_window_is_handed_out_once_and_the_quiet_ones_after_them() -> None:
    floors = Floors()
    members = {name: session(name, floor) for name, floor in (("A", 5), ("B", 1), ("C", 9), ("D", 8))}
    members["C"].window_due = members["D"].window_due = True
    for member in members.values():
        floors.note(member)
    handed = []
    for member in floors.due(quiet_before=6):
        handed.append(member.id)
        member.floor, member.window_due = None, False
    assert handed == ["C", "D", "B", "A"]
    assert list(floors.due(quiet_before=6)) == []
