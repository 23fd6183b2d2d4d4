"""Judging: rates by hand, and the shipped model on recorded windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stream_engine.data.recorded import recorded_series
from stream_engine.data.statistics import right_words
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.training.evaluate import (
    EvaluationWindow,
    Judged,
    answer,
    load_network,
    rate,
    regions_of,
    windows_of,
)

SAMPLES = Path(__file__).parents[4] / "shared" / "data"


def test_the_gate_needs_a_gap_and_a_word_of_the_class() -> None:
    window = EvaluationWindow("x", 32, (), {"trend": "up"})
    judged = [
        Judged(window, word, gap, "up") for word, gap in (("up", 3.0), ("down", 2.5), ("", 9.0), ("up", 2.0))
    ]
    found = rate(judged, 2.0)
    assert (found.windows, found.fired, found.right) == (4, 2, 1)


def test_windows_cover_every_fill_and_label_the_last_window_bars() -> None:
    recorded = list(recorded_series(SAMPLES))
    if not recorded:
        pytest.skip("no recorded series: neither ../shared/data nor bokeh_sampledata is here")
    builder = TokenBuilder.load(EMBEDDED)
    name, symbol, bars = recorded[-1]
    windows = windows_of(builder, list(regions_of(builder, name, symbol, bars, 66)))
    assert {window.fill for window in windows} == set(range(32, 65))
    assert [windows[0].right] == right_words(
        builder.profile.classes, bars.close[None, :32], bars.volume[None, :32]
    )
    opening = len(windows[0].tokens) - builder.tokens_per_bar * windows[0].fill
    assert opening <= len(builder.prefix) + builder.max_anchor_tokens


def test_recorded_bars_are_in_order_and_consistent() -> None:
    recorded = list(recorded_series(SAMPLES))
    if not recorded:
        pytest.skip("no recorded series: neither ../shared/data nor bokeh_sampledata is here")
    for name, _, bars in recorded:
        assert (np.diff(bars.time_us) > 0).all(), name
        assert (bars.low <= bars.close).all(), name
        assert (bars.close <= bars.high).all(), name


def test_shipped_model_is_right_on_recorded_windows_where_the_gate_fires() -> None:
    recorded = list(recorded_series(SAMPLES))
    if not recorded:
        pytest.skip("no recorded series: neither ../shared/data nor bokeh_sampledata is here")
    torch.set_num_threads(1)
    builder, network = TokenBuilder.load(EMBEDDED), load_network(EMBEDDED)
    windows = windows_of(builder, [region for series in recorded for region in regions_of(builder, *series, 66)])
    judged = answer(network, builder, windows, builder.profile.generic_class, None)
    found = rate(judged, builder.profile.tau["trend"])
    assert found.fired >= 0.93 * found.windows
    assert found.right >= 0.96 * found.fired
