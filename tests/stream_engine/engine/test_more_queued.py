"""Riders of a commit that the next one, queued already, would invalidate at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import AnswerChanged, Committed, Record, StandingPut
from stream_engine.model.forward.step import Segment

TREND = "What is the trend?"


class Stream:
    """Data of one session that comes faster than it is committed: more is there before each commit has ended."""

    def __init__(self, bench: Any, make_record: Callable[..., Record]) -> None:
        self.bench = bench
        self.session = bench.engine.sessions["AAPL"]
        self._make = make_record
        self.offset = 40

    def send(self, bars: int) -> None:
        records = [self._make("AAPL", self.offset + number) for number in range(bars)]
        follows, self.offset = self.offset - 1, self.offset + bars
        self.bench.feed(records, follows, run=False)

    def commit(self, more: int) -> int:
        """Runs until the next commit is done, with ``more`` bars coming in after its first step. Returns the
        branches that its last step had."""
        before = self.version()
        assert self.bench.engine.step()
        assert self.version() == before, "one step is not enough for this commit"
        if more:
            self.send(more)
        while self.version() == before:
            assert self.bench.engine.step()
        (segment,) = self.bench.runner.steps[-1]
        assert isinstance(segment, Segment)
        return len(segment.branches)

    def version(self) -> int:
        """Of the newest commit that was told."""
        return max((e.session_version for e in self.bench.events if isinstance(e, Committed)), default=0)


@pytest.fixture
def start(fed: Callable[..., Any], make_record: Callable[..., Record]) -> Callable[..., Stream]:
    def make(**options: Any) -> Stream:
        return Stream(fed(bars=40, step_tokens=16, **options), make_record)

    return make


def test_a_rider_waits_for_the_data_that_is_there_already(start: Callable[..., Stream]) -> None:
    stream = start(max_deferrals=4)
    stream.send(8)
    assert stream.commit(more=8) == 0
    assert "" not in stream.session.ready
    assert stream.commit(more=0) == 1, "nothing follows: it rides"
    assert stream.session.ready[""].gap == stream.bench.expected("AAPL").gap
    stream.bench.engine.run_until_idle()
    stream.bench.engine.check_integrity()


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_but_for_so_many_commits_in_a_row_at_most(patience: int, start: Callable[..., Stream]) -> None:
    stream = start(max_deferrals=patience)
    stream.send(6)
    rode = [stream.commit(more=6) for _ in range(2 * (patience + 1))]
    assert rode == ([0] * patience + [1]) * 2


def test_a_standing_query_of_every_commit_does_not_wait(start: Callable[..., Stream]) -> None:
    stream = start(max_deferrals=4)
    stream.bench.engine.register(StandingPut("AAPL", TREND, "commit"))
    stream.bench.engine.run_until_idle()
    stream.bench.events.clear()
    stream.send(8)
    assert stream.commit(more=8) == 1
    assert stream.commit(more=8) == 1
    told = [e.session_version for e in stream.bench.events if isinstance(e, AnswerChanged)]
    assert told == [48, 56]
