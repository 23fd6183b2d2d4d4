"""Queues: what is chosen, in which order, and by which verbs they change."""

from __future__ import annotations

import pytest

from stream_engine.messages import Check, Query, Record
from stream_engine.state.partitions import OpenBatch
from stream_engine.state.scheduler import CANDIDATES, CheckWork, Lane, QueryWork, Scheduler
from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def scheduler(clock: Clock) -> Scheduler:
    return Scheduler(3, clock.monotonic)


def work(session: str, since: float = 100.0) -> QueryWork:
    return QueryWork(Query(session, "?"), lambda reply: None, since, (1, 2), None)


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


def two_checks() -> list[CheckWork]:
    """Alike but for their hashes, 0 and 1."""
    return [
        CheckWork(
            Check(
                session="A",
                question="?",
                question_class="trend",
                session_version=1,
                position=2,
                token=3,
                gap=4.0,
                token_hash=number,
            ),
            9,
            (1,),
        )
        for number in range(2)
    ]


def test_a_check_comes_after_standing_queries_and_before_lone_prepositions(scheduler: Scheduler) -> None:
    checks = two_checks()
    for check in checks:
        scheduler.add_check(check)
    scheduler.add(Lane.LONE, "A")
    scheduler.add(Lane.SECOND_SLAB, "A")
    selection = scheduler.select()
    assert selection is not None
    assert (selection.check, selection.lane, selection.sessions) == (checks[0], None, ())
    scheduler.add(Lane.STANDING, "B")
    selection = scheduler.select()
    assert selection is not None
    assert (selection.check, selection.lane) == (None, Lane.STANDING)
    scheduler.lane_done(Lane.STANDING, "B")
    assert scheduler.busy
    for check in checks:
        scheduler.check_done(check)
    selection = scheduler.select()
    assert selection is not None
    assert selection.lane is Lane.LONE


def test_commits_join_every_third_query_step_and_the_count_starts_anew_without_queries(
    scheduler: Scheduler,
) -> None:
    scheduler.add_commit("B")

    def joined() -> bool:
        query = work("A")
        scheduler.add_query(query)
        selection = scheduler.select()
        scheduler.query_done(query)
        assert selection is not None
        return bool(selection.commits)

    assert [joined() for _ in range(6)] == [False, False, True, False, False, True]
    joined()
    scheduler.select()
    assert [joined() for _ in range(3)] == [False, False, True]


def test_commits_join_as_often_as_they_are_asked_to(clock: Clock) -> None:
    scheduler = Scheduler(4, clock.monotonic)
    scheduler.add_commit("B")
    scheduler.add_query(work("A"))
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
    assert commit.begin() == []
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


def test_records_that_are_recalled_wait_no_longer(scheduler: Scheduler) -> None:
    record = (Record("A", 1, 0, ()), OpenBatch(1, 1))
    for keep in (False, True):
        scheduler.add_commit("A").records.append(record)
        scheduler.recall("A", keep=keep)
        assert ("A" in scheduler.commits) is keep
    assert scheduler.commits["A"].records == []
    begun = scheduler.add_commit("A")
    begun.records.append(record)
    begun.begin()
    begun.records.append(record)
    scheduler.recall("A", keep=False)
    assert scheduler.commits["A"] is begun, "its records are in the log already"
    assert (begun.taken, begun.records) == ([record], [])
    scheduler.recall("B", keep=False)


def test_records_given_up_with_their_session_hold_no_batch_back(scheduler: Scheduler) -> None:
    batch = OpenBatch(2, 2)
    commit = scheduler.add_commit("A")
    commit.records.append((Record("A", 1, 0, ()), batch))
    commit.begin()
    commit.records.append((Record("A", 2, 0, ()), batch))
    commit.give_up()
    assert (batch.unsettled, batch.applied) == (0, 2)


def test_queries_that_nobody_waits_for_are_taken_off(scheduler: Scheduler) -> None:
    patient, hasty = work("A"), work("A")
    hasty.expires = 103.0
    for query in (patient, hasty):
        scheduler.add_query(query)
    assert scheduler.take_expired(102.9) == []
    assert scheduler.take_expired(103.0) == [hasty]
    assert scheduler.queries == (patient,)


def test_a_check_that_goes_on_is_the_next_one(scheduler: Scheduler) -> None:
    checks = two_checks()
    for check in checks:
        scheduler.add_check(check)
    scheduler.continue_check(checks[1], 7)
    assert [(check.check.token_hash, check.generated) for check in scheduler.checks] == [(1, (7,)), (0, ())]


def test_a_commit_that_is_asked_for_comes_behind_those_in_progress_and_before_all_others(
    scheduler: Scheduler,
) -> None:
    for name in "ABCD":
        scheduler.add_commit(name)
    scheduler.commit_begun(scheduler.commits["B"])
    for name in "DBE":
        scheduler.hasten(name)
    assert scheduler.next_commits() == ("B", "D", "A", "C"), "E has none, and B was begun before"
    scheduler.commit_done(scheduler.commits["D"])
    assert scheduler.next_commits() == ("B", "A", "C")
    scheduler.add_commit("D")
    assert scheduler.next_commits() == ("B", "A", "C", "D"), "it was asked for once"
    scheduler.hasten("C")
    scheduler.recall("C", keep=False)
    assert scheduler.next_commits() == ("B", "A", "D")


def test_no_step_chooses_among_more_than_so_many(scheduler: Scheduler) -> None:
    for number in range(3 * CANDIDATES):
        scheduler.add_commit(f"S{number}")
        scheduler.hasten(f"S{number}")
    assert len(scheduler.next_commits()) == CANDIDATES
