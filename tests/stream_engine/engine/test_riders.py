"""Riders of a commit: what rides, what waits for a while, what is never left out for ever."""

from __future__ import annotations

from typing import Any

import pytest

from stream_engine.decision.entry import Entry, EntryKind
from stream_engine.engine.riders import choose_riders


def entry(length: int, key: str = "", *, every_commit: bool = False) -> Entry:
    return Entry(key, EntryKind.STANDING if key else EntryKind.GENERIC, (7,) * length, None, every_commit)


def riders(*entries: Entry, **changes: Any) -> Any:
    options: dict[str, Any] = {
        "headroom": 100,
        "step_room": 100,
        "query_waits": False,
        "more_queued": False,
        "deferrals": 0,
        "max_deferrals": 2,
    }
    return choose_riders(entries, **{**options, **changes})


def test_what_fills_the_headroom_to_the_last_cell_rides() -> None:
    chosen = riders(entry(3), entry(4, "q"), headroom=7)
    assert [len(rider.tokens) for rider in chosen.riding] == [3, 4]
    assert len(riders(entry(7), headroom=7).riding) == 1


def test_what_fits_rides() -> None:
    chosen = riders(entry(3), entry(4, "q"))
    assert [len(rider.tokens) for rider in chosen.riding] == [3, 4]
    assert (chosen.deferred, chosen.skipped) == ((), ())


def test_no_headroom_is_a_skip_and_too_little_for_both_is_a_wait() -> None:
    chosen = riders(entry(3), entry(4, "q"), entry(9, "long"), headroom=6)
    assert [rider.key for rider in chosen.riding] == [""]
    assert [rider.key for rider in chosen.deferred] == ["q"]
    assert [rider.key for rider in chosen.skipped] == ["long"]
    assert len(riders(entry(3), headroom=-5).skipped) == 1


@pytest.mark.parametrize("cause", [{"query_waits": True}, {"more_queued": True}, {"step_room": 2}])
def test_riders_wait_but_not_for_ever(cause: dict[str, Any]) -> None:
    for deferrals in (0, 1):
        assert len(riders(entry(3), deferrals=deferrals, **cause).deferred) == 1
    assert len(riders(entry(3), deferrals=2, **cause).riding) == 1
    assert len(riders(entry(3), max_deferrals=0, **cause).riding) == 1


@pytest.mark.parametrize("cause", [{"query_waits": True}, {"more_queued": True}, {"step_room": 2}])
def test_what_asked_for_every_commit_never_waits(cause: dict[str, Any]) -> None:
    chosen = riders(entry(3), entry(4, "q", every_commit=True), **cause)
    assert [rider.key for rider in chosen.riding] == ["q"]
    assert [rider.key for rider in chosen.deferred] == [""]


def test_what_asked_for_every_commit_has_the_first_claim_on_the_cells() -> None:
    chosen = riders(entry(3), entry(4, "q", every_commit=True), headroom=6)
    assert [rider.key for rider in chosen.riding] == ["q"]
    assert [rider.key for rider in chosen.deferred] == [""]


def test_only_what_gives_way_counts_as_patience() -> None:
    assert not riders(entry(3), entry(4, "q"), headroom=6).gave_way  # "q" never fits beside the header
    assert not riders(entry(3), entry(4, "q"), headroom=6, deferrals=2, query_waits=True).gave_way
    assert not riders(entry(9), headroom=6, query_waits=True).gave_way
    assert riders(entry(3), entry(4, "q"), headroom=6, query_waits=True).gave_way
    assert riders(entry(3), entry(4, "q"), step_room=5).gave_way


def test_the_step_is_shared_in_order() -> None:
    chosen = riders(entry(3), entry(4, "q"), entry(2, "r"), step_room=5)
    assert [rider.key for rider in chosen.riding] == ["", "r"]
    assert [rider.key for rider in chosen.deferred] == ["q"]
