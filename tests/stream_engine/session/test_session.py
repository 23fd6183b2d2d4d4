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


def test_a_record_whose_bars_are_late_in_part_counts(session: Session, make_record: Callable[..., Record]) -> None:
    session.apply(make_record("AAPL", 7))
    late, new = make_record("AAPL", 8, index=1), make_record("AAPL", 8)
    change = session.apply(msgspec.structs.replace(late, bars=(*late.bars, *new.bars)))
    assert len(change.late) == 1
    assert (session.version, session.offset, len(session.region)) == (9, 8, 2)


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
    session.apply(make_record("AAPL", 65))
    assert (session.swaps, session.window_due) == (1, True), "it is due until it is handed out"


def test_a_split_of_a_window_that_has_just_come_together_is_a_swap(
    session: Session, make_record: Callable[..., Record]
) -> None:
    for offset in range(32):
        session.apply(make_record("AAPL", offset))
    session.window_message()
    session.apply(make_record("AAPL", 32, close=20.0))
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
    assert again.region.bars == session.region.bars
    session.apply(make_record("AAPL", 70))
    assert session.floor == 70


def test_each_bar_of_a_window_keeps_its_own_records_offset_and_stamp(
    session: Session, make_record: Callable[..., Record]
) -> None:
    for offset, stamp in ((7, 50_000), (9, 40_000)):
        session.apply(msgspec.structs.replace(make_record("AAPL", offset), timestamp_ms=stamp))
    window = session.window_message()
    assert (window.session, window.offset) == ("AAPL", 9)
    kept = [(each.offset, each.timestamp_ms) for each in window.bars]
    assert kept == [(7, 50_000), (9, 40_000)]


def test_a_bar_that_was_open_when_the_window_was_written_may_still_change(
    session: Session, make_record: Callable[..., Record], builder: TokenBuilder
) -> None:
    """Its first price is a crash that never was: the units are those of before it, with or without a restart."""
    for offset in range(40):
        session.apply(make_record("AAPL", offset))
    crash = msgspec.structs.replace(make_record("AAPL", 40, close=1.0), still_open=True)
    session.apply(crash)
    again = Session("AAPL", builder, SOURCE)
    again.restore(session.window_message())
    assert again.tokens == session.tokens
    final = make_record("AAPL", 41, 40)
    for each in (session, again):
        each.apply(final)
    assert again.tokens == session.tokens
    assert len(again.region) == 41


@pytest.mark.parametrize(("gap_end", "offset"), [(None, 4), (3, 4), (5, 4), (6, 5), (100, 99)])
def test_a_window_from_before_a_gap_stands_at_the_gaps_end(
    gap_end: int | None,
    offset: int,
    session: Session,
    make_record: Callable[..., Record],
    builder: TokenBuilder,
) -> None:
    """Records up to ``gap_end`` had aged out: their versions were told before, and no version comes twice."""
    for number in range(5):
        session.apply(make_record("AAPL", number))
    again = Session("AAPL", builder, SOURCE)
    again.gap_end = gap_end
    again.restore(session.window_message())
    assert (again.offset, again.version) == (offset, offset + 1)
    assert again.tokens == session.tokens


def test_a_new_owner_of_the_partition_gets_the_windows_that_were_handed_out(
    session: Session, make_record: Callable[..., Record]
) -> None:
    session.apply(make_record("AAPL", 0))
    assert session.window_due, "the first record claims the key"
    session.ask_window()
    assert session.window_due, "what is due stays so"
    session.window_message()
    assert not session.window_due
    session.ask_window()
    assert session.window_due


def test_a_session_without_a_window_has_none_to_give_again(session: Session) -> None:
    session.ask_window()
    assert not session.window_due


def test_a_turn_is_in_the_cells_as_far_as_it_was_computed_and_no_further(builder: TokenBuilder) -> None:
    session = Session("agent", builder)
    session.append_turn((1, 2, 3))
    session.occupy(len(session.tokens))
    session.append_turn((4, 5))
    assert session.resident == len(session.tokens) - 2
    session.occupy(len(session.tokens))
    session.append_turn((6, 7, 8), computed=2)
    assert session.resident == len(session.tokens) - 1


def test_a_session_waits_for_a_tool_until_it_has_answered(session: Session) -> None:
    assert not session.awaiting_tool
    session.await_tool()
    assert session.awaiting_tool
    session.tool_answered()
    assert not session.awaiting_tool


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
