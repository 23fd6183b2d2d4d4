"""What a step looks at: a bounded number of sessions, however many wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import Assign, Record
from stream_engine.state.scheduler import CANDIDATES, Lane, Scheduler


def test_a_step_chooses_among_the_longest_waiting_and_those_in_progress() -> None:
    scheduler = Scheduler(3)
    for number in range(3 * CANDIDATES):
        scheduler.add_commit(f"S{number:04}")
        scheduler.add(Lane.STANDING, f"S{number:04}")
    last = f"S{3 * CANDIDATES - 1:04}"
    scheduler.commit_begun(scheduler.commits[last])
    chosen = scheduler.next_commits()
    assert chosen == (last, *(f"S{number:04}" for number in range(CANDIDATES)))
    assert scheduler.at_work() == {last}
    for number in range(3 * CANDIDATES):
        scheduler.commit_done(scheduler.commits[f"S{number:04}"])
    assert scheduler.at_work() == set()
    selection = scheduler.select()
    assert selection is not None
    assert len(selection.sessions) == CANDIDATES


@pytest.mark.parametrize("lane", [Lane.STANDING, Lane.LONE])
def test_work_that_is_over_is_cleared_away_in_slices(make_bench: Callable[..., Any], lane: Lane) -> None:
    bench = make_bench(preposition="off")
    for number in range(2 * CANDIDATES + 1):
        bench.engine.sessions.open(f"S{number:04}")
        bench.engine.scheduler.add(lane, f"S{number:04}")
    assert bench.engine.step()
    assert bench.engine.scheduler.waiting(lane) == CANDIDATES + 1
    bench.engine.run_until_idle()
    assert bench.engine.scheduler.waiting(lane) == 0


def test_a_step_takes_a_bounded_part_of_the_records_that_wait(
    make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    """Sessions without cells run no tokens: the step's room alone would let all of them in."""
    count = 3 * CANDIDATES
    bench = make_bench(sessions=1, preposition="off")
    assert bench.engine.assign(Assign("market.bars", 0, 1, 0, 0))
    bench.feed([make_record(f"S{number:04}", number) for number in range(count)], -1, run=False)
    waiting = len(bench.engine.scheduler.commits)
    assert bench.engine.step()
    assert 0 < waiting - len(bench.engine.scheduler.commits) <= CANDIDATES
    bench.engine.run_until_idle()
    assert bench.engine.counters.commits_total == count
