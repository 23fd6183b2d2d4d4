"""Summaries of logits rows against the definitions."""

from __future__ import annotations

import math

import pytest
import torch

from stream_engine.model.backbones.summary import summarise


def test_numbers_are_the_distributions() -> None:
    rows = torch.tensor([[0.0, 3.0, 1.0, -2.0], [5.0, 4.5, -1.0, 4.9]])
    first, second = summarise(rows, (1, 3))
    total = sum(math.exp(x) for x in (0.0, 3.0, 1.0, -2.0))
    assert (first.top1, first.top2) == (1, 2)
    assert first.gap == pytest.approx(2.0)
    assert first.log_partition == pytest.approx(math.log(total), rel=1e-6)
    assert first.fast_set_mass == pytest.approx((math.exp(3.0) + math.exp(-2.0)) / total, rel=1e-6)
    assert (second.top1, second.top2) == (0, 3)
    assert second.gap == pytest.approx(0.1, abs=1e-6)


def test_large_logits_and_large_ids_survive() -> None:
    rows = torch.full((1, 300_001), -1e4)
    rows[0, 300_000] = 1e4
    (only,) = summarise(rows.to(torch.float32), (300_000,))
    assert only.top1 == 300_000
    assert only.log_partition == pytest.approx(1e4)
    assert only.fast_set_mass == pytest.approx(1.0)


def test_half_precision_rows_are_summed_in_single() -> None:
    rows = torch.zeros((1, 4096), dtype=torch.bfloat16)
    (only,) = summarise(rows, tuple(range(1024)))
    assert only.log_partition == pytest.approx(math.log(4096), rel=1e-6)
    assert only.fast_set_mass == pytest.approx(0.25, rel=1e-5)


def test_no_rows_no_summaries_and_no_answers_no_mass() -> None:
    assert summarise(torch.empty((0, 7)), (1,)) == []
    (only,) = summarise(torch.randn(1, 7), ())
    assert only.fast_set_mass == 0.0
