"""Series through the engine, on a fake model whose answers depend on the whole token path."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from stream_engine.calibrate.replay import Replay
from stream_engine.data.recorded import bars_of
from stream_engine.data.series import Series, distinct, simulated_series
from stream_engine.messages import Assign, Record


def test_windows_do_not_overlap_and_every_fill_has_its_turn(
    make_bench: Callable[..., Any], series: Series
) -> None:
    moments = list(Replay(make_bench().engine).recorded(series, most=100))
    assert [moment.number for moment in moments] == list(range(12))
    assert [moment.version for moment in moments] == list(range(1, 13))
    assert [moment.fill for moment in moments] == list(range(32, 44))
    for before, after in itertools.pairwise(moments):
        assert before.window.time_us[-1] < after.window.time_us[0]
    assert moments[-1].event_time_us == series.bars.time_us[-1]
    assert all(len(moment.window) == 32 for moment in moments)


def test_only_the_latest_windows_are_taken_where_there_are_more_than_wanted(
    make_bench: Callable[..., Any], series: Series
) -> None:
    moments = list(Replay(make_bench().engine).recorded(series, most=3))
    assert [moment.fill for moment in moments] == [32, 33, 34]
    assert moments[-1].event_time_us == series.bars.time_us[-1]


def test_a_series_too_short_for_a_window_shows_nothing(make_bench: Callable[..., Any], series: Series) -> None:
    short = Series("short", "S", series.bars[:31])
    assert list(Replay(make_bench().engine).recorded(short, most=5)) == []


def test_what_is_seen_is_what_bar_by_bar_commits_would_show(
    make_bench: Callable[..., Any], series: Series
) -> None:
    """Across several swaps; the fake model's gap is a hash of the token log, so equal gaps are equal logs."""
    moments = list(Replay(make_bench().engine).recorded(series, most=100))
    live = make_bench()
    live.engine.assign(Assign("market.bars", 0, 1, 0, 0))
    expected = {}
    for offset, bar in enumerate(bars_of(series.bars)):
        live.feed([Record(series.symbol, offset, offset, (bar,))], offset - 1)
        expected[bar.time_us] = live.expected(series.symbol)
    for moment in moments:
        logits = expected[moment.event_time_us]
        assert (moment.header.top1, moment.header.gap) == (logits.top1, logits.gap)


def test_each_class_is_asked_in_its_wordings_in_turn_and_answered_by_the_full_path(
    make_bench: Callable[..., Any], series: Series
) -> None:
    bench = make_bench()
    listed = bench.builder.profile.questions
    for moment in Replay(bench.engine).recorded(series, most=5):
        assert set(moment.answers) == {answer_class.name for answer_class in bench.builder.profile.classes}
        for name, answer in moment.answers.items():
            assert answer.question == listed[name][moment.number % len(listed[name])]
            logits = bench.expected(series.symbol, answer.question)
            assert answer.path in ("cold", "fallthrough")
            assert answer.gap == logits.gap


def test_simulated_series_show_one_window_each_and_leave_no_session(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(sessions=4)
    replay, drawn = Replay(bench.engine, 4), simulated_series(1, 40, 64)
    moments = list(replay.simulated(drawn))
    assert [moment.number for moment in moments] == list(range(40))
    assert [moment.symbol for moment in moments] == [series.symbol for series in drawn]
    # A jump, as of a split, starts a region of one window: its fill is smaller then.
    turns = [32 + number % 33 for number in range(40)]
    assert sum(moment.fill == turn for moment, turn in zip(moments, turns, strict=True)) >= 30
    assert not bench.engine.sessions
    again = list(replay.simulated(drawn[:2]))
    assert [moment.header.gap for moment in again] == [moment.header.gap for moment in moments[:2]]


def test_drawn_series_are_the_seeds_own(series: Series) -> None:
    first, second = simulated_series(1, 2, 64), simulated_series(2, 2, 64)
    assert [series.sha256() for series in first] == [series.sha256() for series in simulated_series(1, 2, 64)]
    assert len({series.sha256() for series in (*first, *second)}) == 4
    facts = series.facts(12)
    assert (facts.name, facts.windows, len(facts.sha256)) == ("recorded", 12, 64)
    assert facts.first is not None
    assert facts.first.endswith("Z")


def test_the_same_bars_under_another_name_count_once(series: Series) -> None:
    other = Series("renamed", "ABC", series.bars)
    changed = Series("changed", "XYZ", series.bars[:-1])
    assert distinct([series, other, changed]) == [series, changed]
