"""An adapter's training on a tiny model: what it sees, that it learns, that it can go on, and what it leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from stream_engine.data.simulate import simulate
from stream_engine.data.truth import truths
from stream_engine.model.backbones.loader import load_backbone
from stream_engine.model.frame import RegionFrame
from stream_engine.model.hub.files import find_model
from stream_engine.model.render.rendering import load_builder
from stream_engine.model.render.text_builder import TextBuilder
from stream_engine.training.loop import Progress
from stream_engine.training.lora import (
    ADAPTER_WEIGHTS,
    CARD_FILE,
    LoraTrainConfig,
    answer_logits,
    lora_builder,
    train_lora,
)
from stream_engine.training.lora_row import LoraRow, make_batch, make_row, stack


@pytest.fixture
def config(tiny_chat: Path, tmp_path: Path) -> LoraTrainConfig:
    return LoraTrainConfig(
        base=find_model(str(tiny_chat)), out=tmp_path / "run", steps=4, batch=2, boundaries=3, rank=4, warmup=1,
        report_every=1, evaluate_every=2, evaluate_series=2, checkpoint_every=1,
    )  # fmt: skip


def drawn(builder: TextBuilder, seed: int, boundaries: int, bars: int = 0) -> LoraRow:
    rng = np.random.default_rng(seed)
    series = simulate(rng, 1, bars or builder.profile.region_bars).series(0)
    return make_row(builder, rng, "AAPL", series, boundaries)


def test_an_entry_sees_what_a_session_at_its_boundary_would(config: LoraTrainConfig, tiny_chat: Path) -> None:
    builder = lora_builder(config.base)
    rows = [drawn(builder, 4, 3), drawn(builder, 5, 1, builder.profile.window_bars)]  # of unlike lengths
    batch = stack(rows)
    network = AutoModelForCausalLM.from_pretrained(
        str(tiny_chat), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.inference_mode():
        found = answer_logits(network, batch)
        for number, (at, end, right) in enumerate(zip(batch.row, batch.answer_at, batch.answer, strict=True)):
            row = rows[at]
            seen = np.flatnonzero(row.sees[end])
            assert row.positions[seen].tolist() == list(range(len(seen))), "one unbroken sequence"
            expected = network(input_ids=torch.from_numpy(row.tokens[seen])[None], use_cache=False).logits[0, -1]
            assert float((found[number] - expected).abs().max()) < 1e-4
            assert builder.answers[int(right)][0] == "trend"
    assert batch.row.tolist() == [0] * 6 + [1] * 2
    assert batch.generic.tolist() == [True, False] * 4


def test_the_first_steps_ask_only_at_the_window_that_opens_a_region(config: LoraTrainConfig) -> None:
    builder = lora_builder(config.base)
    batch = make_batch(builder, np.random.default_rng(1), 3, builder.profile.window_bars, config.boundaries)
    assert batch.row.tolist() == [0, 0, 1, 1, 2, 2]
    wide = make_batch(builder, np.random.default_rng(1), 3, builder.profile.region_bars, config.boundaries)
    assert batch.tokens.shape[1] < wide.tokens.shape[1]


def test_labels_are_the_statistics_of_the_window_before_the_boundary(config: LoraTrainConfig) -> None:
    builder = lora_builder(config.base)
    bars = simulate(np.random.default_rng(6), 1, builder.profile.region_bars).series(0)
    row = make_row(builder, np.random.default_rng(7), "AAPL", bars, 5)
    kind, window = builder.profile.generic_class, builder.profile.window_bars
    for at, right in zip(row.answer_at[::2], row.answer[::2], strict=True):
        length = int(row.positions[at]) + 1 - len(builder.generic_entry)
        opening = builder.prefix + builder.anchor(RegionFrame.fit("AAPL", bars))
        fill = (length - len(opening)) // builder.tokens_per_bar
        (expected,) = truths([kind], [bars[fill - window : fill]])
        assert builder.answers[int(right)][1] == expected[kind.name]


def test_it_learns(config: LoraTrainConfig) -> None:
    reports: list[Progress] = []
    train_lora(replace(config, steps=16, peak_rate=0.03, evaluate_every=16), reports.append)
    losses = [report.loss for report in reports]
    assert sum(losses[-4:]) < sum(losses[:4]) / 2


def test_it_goes_on_and_is_loaded_by_name_of_its_folder(config: LoraTrainConfig, tiny_chat: Path) -> None:
    reports: list[Progress] = []
    straight = train_lora(replace(config, out=config.out / "a"), reports.append)
    assert [report.step for report in reports] == [1, 2, 3, 4]
    assert set(reports[1].right) == {"right", "past tau", "right past tau"}
    broken = replace(config, out=config.out / "b")
    train_lora(broken, lambda _: None, stop_after=2)
    resumed = train_lora(broken, lambda _: None)
    first, second = (load_file(folder / ADAPTER_WEIGHTS) for folder in (straight, resumed))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.dtype is torch.bfloat16
        torch.testing.assert_close(value, second[name], msg=name)
    written = (straight / CARD_FILE).read_text()
    assert "4 steps of 2 simulated series" in written
    assert f"- right: {reports[-1].right['right']:.3f}" in written
    assert json.loads((straight / "adapter_config.json").read_text())["r"] == 4
    files = find_model(str(tiny_chat), str(straight))
    builder = load_builder(files)
    assert (builder.profile.name, builder.profile.stem) == (f"{tiny_chat.name}-trend", "Trend:")
    assert builder.profile.digest() == lora_builder(config.base).profile.digest()
    assert builder.profile.class_of_question("What is the trend?") is not None
    load_backbone(files.directory, total_cells=8, adapter=files.adapter)
