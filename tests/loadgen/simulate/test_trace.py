"""Traces, drawn and recorded: whole intervals, order, and files that are refused with the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadgen.simulate.gaps import Gaps
from loadgen.simulate.trace import Trace, asked, drawn, read_traces


def test_a_drawn_trace_has_its_intervals_and_queries_within_them() -> None:
    trace = drawn(1, 0, Gaps.poisson(2.0), Gaps.bursts(6.0), 500)
    assert trace.intervals == 500
    assert (np.diff(trace.updates) > 0).all()
    assert (np.diff(trace.queries) >= 0).all()
    assert trace.updates[0] <= trace.queries[0]
    assert trace.queries[-1] < trace.updates[-1]
    assert trace.seconds == trace.updates[-1]


def test_queries_come_at_their_rate_to_the_very_end() -> None:
    updates = np.array([100.0, 5_100.0])
    queries = asked(updates, Gaps.poisson(4.0), np.random.default_rng(2)).queries
    for start in (100.0, 4_100.0):
        count = ((queries >= start) & (queries < start + 1_000)).sum()
        assert count == pytest.approx(4_000, abs=4 * 4_000**0.5)


def test_updates_depend_on_seed_and_session_alone() -> None:
    first = drawn(3, 0, Gaps.poisson(1.0), Gaps.poisson(0.1), 50)
    again = drawn(3, 0, Gaps.poisson(1.0), Gaps.poisson(10.0), 50)
    assert (first.updates == again.updates).all()
    for seed, session in ((4, 0), (3, 1)):
        other = drawn(seed, session, Gaps.poisson(1.0), Gaps.poisson(0.1), 50)
        assert (first.updates != other.updates)[1:].all()


def test_a_recorded_trace_is_sorted_and_cut_to_whole_intervals(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        "session,at,event,note\nB,5,update,\nA,12.5,query,late\nA,3,update,\nA,1,update,\nA,1,query,\nA,0.5,query,\n"
        "A,2,query,\nB,9,update,\nA,3,query,\n"
    )
    traces = read_traces(file)
    assert sorted(traces) == ["A", "B"]
    assert traces["A"].updates.tolist() == [1.0, 3.0]
    assert traces["A"].queries.tolist() == [1.0, 2.0]
    assert (traces["A"].outside, traces["B"].outside) == (3, 0)
    assert traces["B"].queries.tolist() == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1: no column at"),
        ("at,session\n1,A\n", "line 1: no column event"),
        ("at,session,event\n", "no events"),
        ("at,session,event\n1,A,update\n2,A,trade\n", "line 3: event 'trade': update or query"),
        ("at,session,event\n1,A\n", "line 2: event None"),
        ("at,session,event\n1,A,update\nnan,A,update\n", "line 3: at 'nan'"),
        ("at,session,event\n2026-01-01,A,update\n", "line 2: at '2026-01-01': a time in seconds"),
        ("at,session,event\n,A,update\n", "line 2: at ''"),
        ("at,session,event\n1e13,A,update\n", "line 2: at '1e13'"),
        ("at,session,event\n1,A,update\n2,A,query\n", "session A: a session needs two updates"),
        ("at,session,event\n1,A,update\n1,A,update\n", "session A: all its updates are of one instant"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_place(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"trace\.csv") as error:
        read_traces(file)
    assert reason in str(error.value)


def test_a_file_of_bytes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(b"at,session,event\n1,\xff\xfe,update\n")
    with pytest.raises(ValueError, match=r"trace\.csv"):
        read_traces(file)


def test_an_instant_shared_by_query_and_update_is_after_the_update() -> None:
    assert Trace.of(np.array([2.0, 1.0]), np.array([1.0, 2.0])).queries.tolist() == [1.0]
