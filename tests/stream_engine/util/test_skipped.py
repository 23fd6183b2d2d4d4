"""What is skipped is counted always, and told now and then."""

from __future__ import annotations

import logging

import pytest

from stream_engine.util.skipped import Skipped


def test_each_is_counted_and_a_reason_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    skipped = Skipped(logging.getLogger(__name__), lambda: now)
    for number in range(50):
        skipped.note("answer_unreadable", f"number {number}")
    skipped.note("window_unreadable", "x" * 10_000)
    now += 59.9
    skipped.note("answer_unreadable", "too soon")
    now += 0.1
    skipped.note("answer_unreadable", "later")
    assert skipped.counts == {"answer_unreadable": 52, "window_unreadable": 1}
    first, other, later = caplog.messages
    assert first == "skipped: answer unreadable: number 0"
    assert len(other) < 400
    assert later == "skipped: answer unreadable: later (and 50 others since it was last told)"
