"""``min_offset`` on the fast path: the answer that met it includes it, whatever commits between two reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stream_engine.board.reader import BoardReader
from stream_engine.messages import Query
from tests.support.api_service import Service

BOUND = {"partition": 1, "offset": 50}


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """What is to happen once, after the slot was read and before the partition's applied offset is."""

    def plant(change: Callable[[], None]) -> None:
        applied = BoardReader.applied
        changes = [change]

        def moved(reader: BoardReader, topic_index: int, partition: int) -> int | None:
            while changes:
                changes.pop()()
            return applied(reader, topic_index, partition)

        monkeypatch.setattr(BoardReader, "applied", moved)

    return plant


@pytest.fixture
def stale(engine_answers: Service) -> Service:
    """The session's newest record is 41, the partition's 49: offset 50 is still to come."""
    assert engine_answers.board is not None
    engine_answers.board.ready(version=42)
    engine_answers.board.writer.set_applied(0, 1, 50)
    return engine_answers


def test_a_commit_between_the_two_reads_does_not_lend_its_offset_to_the_older_slot(
    stale: Service, meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    board = stale.board
    assert board is not None

    def commit() -> None:
        board.ready(version=51)
        board.writer.set_applied(0, 1, 51)

    meanwhile(commit)
    body = stale.ask(min_offset=BOUND).json()
    assert (body["path"], body["session_version"], body["offset"]) == ("fast", 51, 50)
    board.writer.invalidate(board.sessions["AAPL"])
    counters = board.writer.counters()
    assert (counters.hits, counters.wasted) == (2, 0), "both were read while they were valid"


def test_a_slot_that_went_between_the_two_reads_is_not_served(
    stale: Service, meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    """The commit has come, and nothing is ready for it yet: the engine answers."""
    board = stale.board
    assert board is not None

    def commit() -> None:
        board.writer.invalidate(board.sessions["AAPL"])
        board.writer.set_applied(0, 1, 51)

    meanwhile(commit)
    assert stale.ask(min_offset=BOUND).json()["path"] == "fallthrough"
    (query,) = stale.engine.of(Query)
    assert query.min_offset is not None


def test_another_sessions_record_meets_the_bound_on_the_same_slot(stale: Service) -> None:
    board = stale.board
    assert board is not None
    board.writer.set_applied(0, 1, 51)
    body = stale.ask(min_offset=BOUND).json()
    assert (body["path"], body["session_version"]) == ("fast", 42)
    board.writer.invalidate(board.sessions["AAPL"])
    counters = board.writer.counters()
    assert (counters.hits, counters.wasted) == (1, 0)
