"""After a restart no session is served before it is as far as an earlier life may have answered from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.board.writer import BoardWriter
from stream_engine.decision.reading import Miss
from stream_engine.messages import Answer, Assign, Committed, ErrorReply, Record
from stream_engine.process.status import session_info
from stream_engine.session.session import SessionState
from tests.support.batches import batch_of

TOPIC, TREND = "market.bars", "What is the trend?"


@pytest.fixture
def feed(make_record: Callable[..., Record]) -> Callable[..., None]:
    def feed(bench: Any, start: int, end: int, keys: str = "A") -> None:
        records = tuple(make_record(keys[offset % len(keys)], offset) for offset in range(start, end))
        assert bench.engine.ingest.take(batch_of(records, start - 1, last=end - 1, consumed=end - start)) is None
        bench.engine.run_until_idle()
        bench.engine.ingest.settle()
        bench.engine.run_until_idle()

    return feed


def state_of(bench: Any, session: str = "A") -> SessionState:
    state: SessionState = bench.engine.sessions[session].state
    return state


def test_a_session_is_served_from_the_end_that_the_log_had(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], feed: Callable[..., None]
) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 40, serve_from=60))
    bench.claim(make_record("A", 0))
    feed(bench, 0, 40)
    assert state_of(bench) is SessionState.REBUILDING
    assert bench.events == []  # a replay
    for offset in range(40, 59):
        feed(bench, offset, offset + 1)
        refused = bench.ask("A", TREND)
        assert isinstance(refused, ErrorReply)
        assert (refused.status, refused.kind) == (503, "session_rebuilding")
        (info,) = session_info(bench.engine, bench.engine.sessions["A"]).sessions
        assert (info.state, info.data_version) == ("REBUILDING", None)  # it had more than what is refilled
    assert [event.session_version for event in bench.events if isinstance(event, Committed)] == [*range(41, 60)]
    feed(bench, 59, 60)
    answer = bench.ask("A", TREND)
    assert isinstance(answer, Answer)
    assert (answer.session_version, state_of(bench)) == (60, SessionState.LIVE)
    assert session_info(bench.engine, bench.engine.sessions["A"]).sessions[0].data_version == 60


def test_a_session_that_no_record_came_for_is_served_with_its_partition(
    make_bench: Callable[..., Any], feed: Callable[..., None]
) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0, serve_from=80))
    feed(bench, 0, 70, "AB")
    assert {state_of(bench, name) for name in "AB"} == {SessionState.REBUILDING}
    feed(bench, 70, 80)
    assert {state_of(bench, name) for name in "AB"} <= {SessionState.LIVE, SessionState.FULL}
    assert isinstance(bench.ask("B", TREND), Answer)


def test_late_records_alone_keep_no_session_waiting(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], feed: Callable[..., None]
) -> None:
    bench = make_bench()
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0, serve_from=41))
    feed(bench, 0, 40)
    late = make_record("A", 40, -5)
    bench.engine.ingest.take(batch_of((late,), 39, last=40))
    bench.engine.run_until_idle()
    bench.engine.ingest.settle()
    bench.engine.run_until_idle()
    assert state_of(bench) is SessionState.LIVE


def test_sessions_beyond_the_cells_wait_as_well(make_bench: Callable[..., Any], feed: Callable[..., None]) -> None:
    bench = make_bench(sessions=1)
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0, serve_from=90))
    feed(bench, 0, 80, "AB")
    for session in "AB":
        assert isinstance(bench.ask(session, TREND), ErrorReply)
    feed(bench, 80, 90, "AB")
    for session in "AB":
        assert isinstance(bench.ask(session, TREND), Answer)


def test_the_board_shows_nothing_before(
    make_bench: Callable[..., Any], feed: Callable[..., None], tmp_path: Any
) -> None:
    plain = make_bench()
    path = tmp_path / "board"
    writer = BoardWriter.create(path, board_meta(plain.builder.profile, plain.gate), 8, 64, 1, 60.0)
    bench = make_bench(board=writer)
    reader = BoardReader.open(path, 0)
    bench.engine.assign(Assign(TOPIC, 0, 1, 0, 0, serve_from=50))
    for offset in range(49):
        feed(bench, offset, offset + 1)
        assert isinstance(reader.read("A", ""), Miss)
    feed(bench, 49, 50)
    slot = reader.read("A", "")
    assert isinstance(slot, ReadySlot)
    assert slot.evidence.session_version == 50
    bench.engine.close()
