"""The probe's times: a runner that takes a known time for each kind of work, on a clock of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from stream_engine.calibrate.probe import _Timed
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Branch, Segment
from stream_engine.model.render.builder import TokenBuilder

PASS, APPENDED, BRANCHED = 1.0, 1 / 64, 1 / 4096
"""Seconds: of a step, of each appended token, of each token of a branch. Exact as floats."""


class Planted:
    def __init__(self) -> None:
        self.now = 0.0
        self.copies: list[tuple[int, int, int]] = []
        self.steps: list[Sequence[Segment]] = []

    def clock(self) -> float:
        return self.now

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        self.steps.append(segments)
        appended = sum(len(segment.append) for segment in segments)
        branched = sum(segment.size for segment in segments) - appended
        self.now += PASS + APPENDED * appended + BRANCHED * branched
        row = Distribution(1, 2, 3.0, 4.0, 5.0, 0.5)
        return [SegmentResult((row,) * len(segment.branches)) for segment in segments]

    def copy(self, source: int, target: int, count: int) -> None:
        self.now += 100.0
        self.copies.append((source, target, count))


@pytest.fixture
def planted() -> Planted:
    return Planted()


@pytest.fixture
def timed(planted: Planted) -> _Timed:
    return _Timed(planted, planted.clock)


def entries(*lengths: int, append: int = 0) -> Segment:
    ends = [10 + append + sum(lengths[:at]) for at in range(len(lengths))]
    branches = tuple(Branch((7,) * length, cell) for length, cell in zip(lengths, ends, strict=True))
    return Segment(0, 10, (7,) * append, branches)


def test_a_prefill_is_a_token_of_long_appends_alone(timed: _Timed) -> None:
    for appended in (1, 3, 31):
        timed.run([entries(append=appended)])
    assert math.isnan(timed.prefill_ms)
    timed.run([entries(2, append=32)])
    assert timed.prefill_ms == 1e3 * (PASS + 32 * APPENDED + 2 * BRANCHED) / 32
    timed.run([entries(append=64), Segment(500, 10, (7,) * 64)])  # two sessions' tokens share the step
    timed.run([entries(append=256)])
    assert timed.prefill_ms == 1e3 * (PASS + 128 * APPENDED) / 128


def test_a_question_is_its_share_of_a_step_of_whole_entries(timed: _Timed) -> None:
    timed.run([entries(1)])  # one more token of a long answer
    timed.run([entries(1, 1)])
    timed.run([entries(5, append=40)])  # the header of a commit
    assert math.isnan(timed.question_ms)
    timed.run([entries(6, 7, 8)])
    assert timed.question_ms == 1e3 * (PASS + 21 * BRANCHED) / 3


def test_a_decode_is_one_token_on_a_whole_window_and_nothing_that_ran_before(
    timed: _Timed, planted: Planted, builder: TokenBuilder
) -> None:
    timed.run([entries(append=4_000)])
    timed.copy(0, 40, 9)
    assert timed.decode_ms(builder) == 1e3 * (PASS + BRANCHED)
    window = len(builder.prefix) + 32 * builder.tokens_per_bar
    decodes = planted.steps[1:]
    assert len(decodes) == 9
    assert {(segment.length, segment.size, segment.append) for (segment,) in decodes} == {(window, 1, ())}
    assert planted.copies == [(0, 40, 9)]


def test_results_are_the_runners_own(timed: _Timed) -> None:
    (result,) = timed.run([entries(2, 3)])
    assert [row.gap for row in result.branches] == [3.0, 3.0]
