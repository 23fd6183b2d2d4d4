"""Session states and the token log."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from stream_engine.messages import Record
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.session.session import IllegalTransition, ResidentBranch, Session, SessionState, Source

SOURCE = Source("market.bars", 0)
SERVING = (SessionState.WARMING_UP, SessionState.LIVE, SessionState.FULL)


@pytest.fixture
def session(builder: TokenBuilder) -> Session:
    return Session("AAPL", builder, SOURCE)


@pytest.mark.parametrize("state", list(SessionState))
def test_no_state_leads_back_to_empty(session: Session, state: SessionState) -> None:
    session.state = state
    if state is not SessionState.EMPTY:
        with pytest.raises(IllegalTransition, match=f"{state.value} -> EMPTY"):
            session.move_to(SessionState.EMPTY)


@pytest.mark.parametrize("state", [*SERVING, SessionState.EVICTED])
def test_only_new_sessions_are_rebuilt(session: Session, state: SessionState) -> None:
    session.state = state
    with pytest.raises(IllegalTransition, match="'AAPL'"):
        session.move_to(SessionState.REBUILDING)
    assert session.state is state


def test_staying_is_always_legal(session: Session) -> None:
    for state in SessionState:
        session.state = state
        session.move_to(state)
        assert session.serving is (state in SERVING or state is SessionState.EVICTED)


def test_a_record_moves_version_offset_and_time(session: Session, make_record: Callable[..., Record]) -> None:
    session.apply(make_record("AAPL", 7))
    assert (session.version, session.offset, session.timestamp_ms) == (8, 7, 1_007)
    assert session.floor == 7
    assert session.event_time_us == 7 * 60_000_000
    session.apply(make_record("AAPL", 9))
    assert (session.version, session.floor) == (10, 7)
    session.check_integrity()


@pytest.mark.parametrize("ahead", [1_000_000_000_000, 2**63 - 1, -1, -(2**63)])
def test_the_newest_records_stamp_counts_not_the_largest(
    session: Session, make_record: Callable[..., Record], ahead: int
) -> None:
    session.apply(msgspec.structs.replace(make_record("AAPL", 7), timestamp_ms=ahead))
    assert session.timestamp_ms == ahead
    again = Session("AAPL", session.builder)
    again.restore(session.window_message())
    assert again.timestamp_ms == ahead
    for held in (session, again):
        held.apply(make_record("AAPL", 8))
        assert held.timestamp_ms == 1_008


def test_a_session_that_no_record_has_reached_has_no_stamp(session: Session) -> None:
    assert session.timestamp_ms == -1


def test_a_late_record_moves_nothing(session: Session, make_record: Callable[..., Record]) -> None:
    session.apply(make_record("AAPL", 7))
    tokens = list(session.tokens)
    change = session.apply(make_record("AAPL", 8, index=1))
    assert len(change.late) == 1
    assert (session.version, session.offset, session.tokens) == (8, 7, tokens)


def test_the_resident_length_is_cut_to_what_still_holds(
    session: Session, make_record: Callable[..., Record], builder: TokenBuilder
) -> None:
    for offset in range(40):
        session.apply(make_record("AAPL", offset))
    session.resident = len(session.tokens)
    assert session.current
    session.apply(make_record("AAPL", 40, index=39, close=99.0))  # replaces the last bar
    assert session.resident == len(session.tokens) - builder.tokens_per_bar
    session.apply(make_record("AAPL", 41, index=0, close=99.0))  # the first one
    assert session.resident == len(builder.prefix) + session.region.boundary(0)
    session.apply(make_record("AAPL", 42, index=50, close=9_000.0))  # other units
    assert session.resident == len(builder.prefix)
    assert session.swaps == 1


def test_swaps_count_full_windows_only(session: Session, make_record: Callable[..., Record]) -> None:
    for offset in range(31):
        session.apply(make_record("AAPL", offset))
    session.window_message()  # the first record asks for one: it claims the key
    session.apply(make_record("AAPL", 31))  # the window is complete: fitted once more, no swap
    assert (session.swaps, session.window_due) == (0, False)
    for offset in range(32, 65):
        session.apply(make_record("AAPL", offset))
    assert (session.swaps, session.window_due) == (1, True)


def test_the_fill_decides_the_serving_state(session: Session, make_record: Callable[..., Record]) -> None:
    assert session.settled_state() is SessionState.WARMING_UP
    expected = {31: SessionState.WARMING_UP, 32: SessionState.LIVE, 63: SessionState.LIVE, 64: SessionState.FULL}
    for offset in range(64):
        session.apply(make_record("AAPL", offset))
        if offset + 1 in expected:
            assert session.settled_state() is expected[offset + 1]
    assert session.window == 32


def test_turns_alone_are_live(builder: TokenBuilder) -> None:
    session = Session("agent", builder)
    session.append_turn((1, 2, 3))
    assert session.settled_state() is SessionState.LIVE
    assert session.version == 1
    session.check_integrity()


def test_a_window_carries_everything_of_the_session(
    session: Session, make_record: Callable[..., Record], builder: TokenBuilder
) -> None:
    for offset in range(70):
        session.apply(make_record("AAPL", offset))
    window = session.window_message()
    assert (session.floor, session.has_window, session.window_due) == (None, True, False)
    again = Session("AAPL", builder, SOURCE)
    again.restore(window)
    for name in ("tokens", "version", "offset", "timestamp_ms", "swaps", "floor", "has_window"):
        assert getattr(again, name) == getattr(session, name)
    session.apply(make_record("AAPL", 70))
    assert session.floor == 70


@pytest.mark.parametrize("fault", ["tokens", "resident", "branch", "order"])
def test_integrity_names_the_session(session: Session, make_record: Callable[..., Record], fault: str) -> None:
    for offset in range(3):
        session.apply(make_record("AAPL", offset))
    session.check_integrity()
    if fault == "tokens":
        session.tokens.append(1)
    elif fault == "resident":
        session.resident = len(session.tokens) + 1
    elif fault == "branch":
        session.branches.append(ResidentBranch((1, 2), session.scratch_end))
    else:
        session.region.bars.reverse()
    with pytest.raises(AssertionError, match="'AAPL'"):
        session.check_integrity()
