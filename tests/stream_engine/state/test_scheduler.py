"""Queues and riders: what is chosen, in which order, and what is never left out for ever."""

from __future__ import annotations

from typing import Any

import pytest

from stream_engine.decision.entry import Entry, EntryKind
from stream_engine.messages import Check, Query, Record
from stream_engine.state.partitions import OpenBatch
from stream_engine.state.scheduler import CheckWork, Lane, QueryWork, Scheduler, choose_riders


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduler(clock: Clock) -> Scheduler:
    return Scheduler(3, clock)


def work(session: str, since: float = 100.0) -> QueryWork:
    return QueryWork(Query(session, "?"), lambda reply: None, since, (1, 2), None)


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


def test_priorities(scheduler: Scheduler) -> None:
    assert scheduler.select() is None
    assert not scheduler.busy
    for lane in reversed(Lane):
        scheduler.add(lane, "A")
        selection = scheduler.select()
        assert selection is not None
        assert (selection.lane, selection.sessions) == (lane, ("A",))
    scheduler.add_commit("B")
    selection = scheduler.select()
    assert selection is not None
    assert (selection.commits, selection.lane) == (("B",), None)
    scheduler.add_query(work("C"))
    selection = scheduler.select()
    assert selection is not None
    assert selection.queries
    assert selection.commits == ()
    assert scheduler.busy


def test_a_check_comes_after_standing_queries_and_before_lone_prepositions(scheduler: Scheduler) -> None:
    checks = [CheckWork(Check("A", "?", "trend", 1, 2, 3, 4.0, number), 9, (1,)) for number in range(2)]
    scheduler.checks.extend(checks)
    scheduler.add(Lane.LONE, "A")
    scheduler.add(Lane.SECOND_SLAB, "A")
    selection = scheduler.select()
    assert selection is not None
    assert (selection.check, selection.lane, selection.sessions) == (checks[0], None, ())
    scheduler.add(Lane.STANDING, "B")
    selection = scheduler.select()
    assert selection is not None
    assert (selection.check, selection.lane) == (None, Lane.STANDING)
    del scheduler.lanes[Lane.STANDING]["B"]
    assert scheduler.busy
    scheduler.checks.clear()
    selection = scheduler.select()
    assert selection is not None
    assert selection.lane is Lane.LONE


def test_commits_join_every_third_query_step_and_the_count_starts_anew_without_queries(
    scheduler: Scheduler,
) -> None:
    scheduler.add_commit("B")

    def joined() -> bool:
        scheduler.queries.append(work("A"))
        selection = scheduler.select()
        scheduler.queries.clear()
        assert selection is not None
        return bool(selection.commits)

    assert [joined() for _ in range(6)] == [False, False, True, False, False, True]
    joined()
    scheduler.select()
    assert [joined() for _ in range(3)] == [False, False, True]


def test_commits_join_as_often_as_they_are_asked_to(clock: Clock) -> None:
    scheduler = Scheduler(4, clock)
    scheduler.add_commit("B")
    scheduler.queries.append(work("A"))
    steps = [scheduler.select() for _ in range(8)]
    joined = [step is not None and bool(step.commits) for step in steps]
    assert joined == [False, False, False, True] * 2


def test_records_of_one_session_wait_together(scheduler: Scheduler, clock: Clock) -> None:
    first = scheduler.add_commit("A")
    clock.now += 5
    assert scheduler.add_commit("A") is first
    assert scheduler.oldest_s() == 5.0


def test_records_that_come_during_a_commit_are_the_next_one(scheduler: Scheduler, clock: Clock) -> None:
    commit = scheduler.add_commit("A")
    scheduler.add_commit("B")
    commit.taken, commit.records, commit.started = commit.records, [], True
    record = (Record("A", 1, 0, ()), OpenBatch(1, 1))
    scheduler.add_commit("A").records.append(record)
    clock.now += 5
    scheduler.commit_done(commit)
    assert list(scheduler.commits) == ["B", "A"]  # behind what waits already
    following = scheduler.commits["A"]
    assert (following.records, following.taken, following.started) == ([record], [], False)
    assert following.since == clock.now
    scheduler.commit_done(following)


def test_a_dropped_session_leaves_no_work(scheduler: Scheduler) -> None:
    for lane in Lane:
        scheduler.add(lane, "A")
        scheduler.add(lane, "A")
    commit = scheduler.add_commit("A")
    assert scheduler.drop_session("A") is commit
    assert scheduler.drop_session("A") is None
    assert not scheduler.busy
    assert scheduler.oldest_s() == 0.0


def test_background_work_is_never_old(scheduler: Scheduler, clock: Clock) -> None:
    scheduler.add(Lane.LONE, "A")
    clock.now += 1_000
    assert scheduler.oldest_s() == 0.0
    scheduler.add_query(work("A", since=1_090.0))
    assert scheduler.oldest_s() == pytest.approx(10.0)


def test_what_fills_the_headroom_to_the_last_cell_rides() -> None:
    chosen = riders(entry(3), entry(4, "q"), headroom=7)
    assert [len(one.tokens) for one in chosen.riding] == [3, 4]
    assert len(riders(entry(7), headroom=7).riding) == 1


def test_what_fits_rides() -> None:
    chosen = riders(entry(3), entry(4, "q"))
    assert [len(one.tokens) for one in chosen.riding] == [3, 4]
    assert (chosen.deferred, chosen.skipped) == ((), ())


def test_no_headroom_is_a_skip_and_too_little_for_both_is_a_wait() -> None:
    chosen = riders(entry(3), entry(4, "q"), entry(9, "long"), headroom=6)
    assert [one.key for one in chosen.riding] == [""]
    assert [one.key for one in chosen.deferred] == ["q"]
    assert [one.key for one in chosen.skipped] == ["long"]
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
    assert [one.key for one in chosen.riding] == ["q"]
    assert [one.key for one in chosen.deferred] == [""]


def test_what_asked_for_every_commit_has_the_first_claim_on_the_cells() -> None:
    chosen = riders(entry(3), entry(4, "q", every_commit=True), headroom=6)
    assert [one.key for one in chosen.riding] == ["q"]
    assert [one.key for one in chosen.deferred] == [""]


def test_only_what_gives_way_counts_as_patience() -> None:
    assert not riders(entry(3), entry(4, "q"), headroom=6).gave_way  # "q" never fits beside the header
    assert not riders(entry(3), entry(4, "q"), headroom=6, deferrals=2, query_waits=True).gave_way
    assert not riders(entry(9), headroom=6, query_waits=True).gave_way
    assert riders(entry(3), entry(4, "q"), headroom=6, query_waits=True).gave_way
    assert riders(entry(3), entry(4, "q"), step_room=5).gave_way


def test_the_step_is_shared_in_order() -> None:
    chosen = riders(entry(3), entry(4, "q"), entry(2, "r"), step_room=5)
    assert [one.key for one in chosen.riding] == ["", "r"]
    assert [one.key for one in chosen.deferred] == ["q"]
