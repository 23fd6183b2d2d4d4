"""What is timed in which row: a model on a clock of its own, where every kind of work has a known cost."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from loadgen.gpu import steps as gpu_steps
from loadgen.gpu.results import Spread, StepTimes
from loadgen.gpu.steps import Sizes, TimedModel, measure
from stream_engine.model.backbones import model_runner
from stream_engine.model.backbones.backbone import Backbone, StepLogits
from stream_engine.model.forward.step import Branch, Segment, lay_out

LAUNCH, PASS, APPENDED, BRANCHED, ROW, COPIED = 0.5, 1.0, 1e-2, 1e-4, 3e-6, 1e-7
"""Seconds: of the host for a step, of the device for the weights, for each appended token and each token of a
branch; of one row of logits; of one copied cell."""
VIEW = 2e-6
FIRST, SLOW = 3, 100.0
"""So many of each kind of work are slow when it is new: a measurement leaves them out."""
VOCABULARY = 64
FUSED, CHUNKS, REUSED = 0.25, 0.125, 0.5
"""Float noise of this model: what a gap gains where the same tokens are computed in that way."""
SIZES = Sizes(context=600, entry=7, question=5)


class Planted:
    """Stands where the backbone stands. As on a GPU, what the device does takes the time of who waits for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pending = 0.0
        self.cells = [-1] * SIZES.cells
        self.writer = [0] * SIZES.cells
        """Tokens of the append that wrote a cell."""
        self.done: dict[str, int] = {}
        self.entries: dict[str, set[tuple[int, ...]]] = {}
        self.views: list[tuple[int, int]] = []
        self._entries: set[tuple[int, ...]] = set()
        self.vocab_size = VOCABULARY
        self.store = SimpleNamespace(device=torch.device("cuda"), copy=self.copy, extent=self.extent)

    def told(self, text: str) -> None:
        """The end of a row."""
        self.done.clear()
        self.entries[text.partition(":")[0]] = self._entries
        self._entries = set()

    def clock(self) -> float:
        return self.now

    def wait(self, device: object = None) -> None:
        self.now, self.pending = self.now + self.pending, 0.0

    def work(self, kind: str, seconds: float) -> None:
        self.done[kind] = self.done.get(kind, 0) + 1
        self.pending += seconds + SLOW * (self.done[kind] <= FIRST)

    def forward(self, segments: Sequence[Segment]) -> StepLogits:
        layout = lay_out(segments)
        (segment,) = segments
        branched = sum(len(branch.tokens) for branch in segment.branches)
        self.now += LAUNCH
        self.work("forward", PASS + APPENDED * len(segment.append) + BRANCHED * branched)
        resident = self.cells[: segment.length]
        assert -1 not in resident, "a step stands on cells that nothing has filled"
        for offset, token in enumerate(segment.append):
            self.cells[segment.length + offset] = token
            self.writer[segment.length + offset] = len(segment.append)
        rows = torch.zeros((len(layout.keep), VOCABULARY))
        for row, branch in enumerate(segment.branches):
            self._judge(rows[row], segment, branch)
        return StepLogits(rows, layout.rows)

    def _judge(self, row: torch.Tensor, segment: Segment, branch: Branch) -> None:
        reused = self.cells[branch.reused_cell : branch.reused_cell + branch.reused]
        self.cells[branch.cell : branch.cell + len(branch.tokens)] = branch.tokens
        self._entries.add((*reused, *branch.tokens))
        chunks = self.writer[segment.live_end - 1] == gpu_steps.BAR_TOKENS
        gap = 2.0 + FUSED * bool(segment.append) + CHUNKS * chunks + REUSED * bool(branch.reused)
        row[9 if branch.reused else 8] = gap

    def copy(self, source: int, target: int, count: int) -> None:
        self.work("copy", COPIED * count)
        run = self.cells[source : source + count]
        assert -1 not in run, "cells are copied that nothing has filled"
        self.cells[target : target + count] = run

    def extent(self, first: int, count: int) -> None:
        self.now += VIEW
        self.views.append((first, count))


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    model, summarise = Planted(), gpu_steps.summarise

    def reduced(rows: torch.Tensor, answers: Sequence[int]) -> object:
        if len(rows):
            model.work("reduce", ROW * len(rows))
            model.wait()  # the numbers come to the host
        return summarise(rows, answers)

    monkeypatch.setattr(torch.cuda, "synchronize", model.wait)
    monkeypatch.setattr(gpu_steps, "summarise", reduced)
    monkeypatch.setattr(model_runner, "summarise", reduced)
    return model


@pytest.fixture
def measured(planted: Planted) -> StepTimes:
    bench = TimedModel(cast(Backbone, planted), SIZES, clock=planted.clock)
    return measure(bench, 4, planted.told)


def milliseconds(*seconds: float) -> float:
    return pytest.approx(sum(seconds) * 1e3, abs=1e-6)  # type: ignore[return-value]


def test_each_row_holds_the_cost_of_its_own_step_and_nothing_else(measured: StepTimes) -> None:
    step = LAUNCH + PASS
    expected = {
        "decode": milliseconds(step, APPENDED, ROW),
        "launch": milliseconds(LAUNCH),
        "commit": milliseconds(step, 9 * APPENDED),
        "preposition": milliseconds(step, 7 * BRANCHED, ROW),
        "fused": milliseconds(step, 9 * APPENDED, 7 * BRANCHED, ROW),
        "cold": milliseconds(step, 12 * BRANCHED, ROW),
        "fall_through": milliseconds(step, BRANCHED, ROW, 11 * COPIED),
        "fall_through_question": milliseconds(step, 5 * BRANCHED, ROW, 7 * COPIED),
        "scan": milliseconds(ROW),
        "copy": milliseconds(600 * COPIED),
    }
    found = {name: getattr(measured, name) for name in expected}
    assert {name: spread.p50 for name, spread in found.items()} == expected
    assert {name: spread.p90 for name, spread in found.items()} == expected, "a warm-up is among the repeats"
    assert {spread.repeats for spread in found.values()} == {4}


def test_what_follows_from_the_rows(measured: StepTimes) -> None:
    assert measured.restore_ms == pytest.approx((BRANCHED + 11 * COPIED - APPENDED) * 1e3)
    assert measured.fused_extra_ms == pytest.approx((7 * BRANCHED + ROW) * 1e3)


def test_the_slope_of_the_appends_is_the_cost_of_a_token(measured: StepTimes) -> None:
    prefill = measured.prefill
    assert {count: spread.p50 for count, spread in prefill.lengths.items()} == {
        count: milliseconds(LAUNCH, PASS, count * APPENDED, ROW) for count in (16, 32, 64, 128, 256, 512, 1024)
    }
    assert prefill.ms_per_token == pytest.approx(APPENDED * 1e3)
    assert prefill.intercept_ms == pytest.approx((LAUNCH + PASS + ROW) * 1e3)


def test_a_truncation_is_one_view(measured: StepTimes, planted: Planted) -> None:
    assert measured.truncate_us == pytest.approx(VIEW * 1e6)
    assert all(first == 0 and 0 < count <= 600 for first, count in planted.views)


def test_all_three_ways_to_an_answer_compute_the_same_entry(measured: StepTimes, planted: Planted) -> None:
    (cold,) = planted.entries["cold"]
    assert len(cold) == 12
    assert planted.entries["fall-through"] == planted.entries["fall-through, question new"] == {cold}
    assert planted.entries["pre-position"] == planted.entries["commit and pre-position"]
    assert planted.entries["commit"] == planted.entries["decode"] == set()


def test_noise_is_told_by_the_way_it_came(measured: StepTimes) -> None:
    noise = measured.noise
    assert (noise.fused, noise.chunks, noise.reused) == pytest.approx((FUSED, CHUNKS, REUSED), abs=1e-6)
    assert noise.largest == noise.reused
    assert (noise.draws, noise.top1_changed) == (4, 4)  # this model answers otherwise on cells that it reuses


def test_a_spread_is_of_all_repeats_in_milliseconds() -> None:
    assert Spread.of([0.001 * value for value in (5, 1, 11, 2, 3, 4, 6, 7, 8, 9, 10)]) == Spread(
        pytest.approx(6.0), pytest.approx(10.0), 11
    )
