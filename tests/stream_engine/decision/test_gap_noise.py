"""The noise of a gap, measured on the model as it is served."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_engine.config.engine import EngineSettings
from stream_engine.decision.gap_noise import measured_noise
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Segment
from stream_engine.model.render.rendering import Builder
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_gate import gate_noise
from stream_engine.process.configured_model import load_runner

SETTINGS = EngineSettings(threads=1)


class Scripted:
    """Answers step after step with the next gap."""

    def __init__(self, gaps: list[float]) -> None:
        self.gaps = list(gaps)
        self.segments: list[Segment] = []

    def run(self, segments: list[Segment]) -> list[SegmentResult]:
        self.segments += segments
        return [SegmentResult((Distribution(1, 2, self.gaps.pop(0), 20.0, 0.0, 0.5),))]

    def copy(self, source: int, target: int, count: int) -> None:
        raise AssertionError("nothing is copied")


def test_the_largest_difference_of_one_decision_point_counts(builder: Builder) -> None:
    same = [5.0] * 4
    runner = Scripted([*same, 5.0, 5.25, 4.75, 5.0, *same])
    assert measured_noise(runner, builder, 1e-7) == pytest.approx(1.0), "twice the largest"
    assert len(runner.segments) == 4 * 3
    ends = {
        (segment.live_end, segment.live_end + sum(b.reused + len(b.tokens) for b in segment.branches))
        for segment in runner.segments[:4]
    }
    assert len(ends) == 1, "the same decision point in every way"


def test_ways_that_agree_by_chance_do_not_hide_a_coarse_type(builder: Builder) -> None:
    """A logit of 20 is known to 20 / 128 there, a gap is of two of them, and that counts twice as well."""
    assert measured_noise(Scripted([5.0] * 12), builder, 2**-7) == pytest.approx(0.625)


def test_float32_is_finer_than_the_least_noise_and_bfloat16_is_not(builder: Builder) -> None:
    def noise(settings: EngineSettings) -> float:
        return gate_noise(load_runner(settings, builder, budget_shape(settings, builder)), builder)

    assert noise(SETTINGS) == 0.001
    assert noise(replace(SETTINGS, dtype="bfloat16")) > 0.02
