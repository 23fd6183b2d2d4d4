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

from stream_engine.calibrate.truth import truths
from stream_engine.model.files import find_model
from stream_engine.model.loader import load_backbone
from stream_engine.model.rendering import load_builder
from stream_engine.training.loop import Progress
from stream_engine.training.lora import (
    ADAPTER_WEIGHTS,
    CARD_FILE,
    LoraTrainConfig,
    answer_logits,
    lora_builder,
    train_lora,
)
from stream_engine.training.lora_row import make_row, make_rows
from stream_engine.training.simulate import simulate


@pytest.fixture
def config(tiny_chat: Path, tmp_path: Path) -> LoraTrainConfig:
    return LoraTrainConfig(
        base=find_model(str(tiny_chat)), out=tmp_path / "run", steps=4, batch=2, boundaries=3, rank=4, warmup=1,
        report_every=1, evaluate_every=2, evaluate_series=2, checkpoint_every=1,
    )  # fmt: skip


def test_an_entry_sees_what_a_session_at_its_boundary_would(config: LoraTrainConfig, tiny_chat: Path) -> None:
    builder = lora_builder(config.base)
    row = make_rows(builder, np.random.default_rng(4), 1, 3)[0]
    network = AutoModelForCausalLM.from_pretrained(
        str(tiny_chat), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    for end, right in zip(row.answer_at, row.answer, strict=True):
        seen = np.flatnonzero(row.sees[end])
        assert row.positions[seen].tolist() == list(range(len(seen))), "one unbroken sequence"
        alone = torch.from_numpy(row.tokens[seen])[None]
        with torch.inference_mode():
            expected = network(input_ids=alone, use_cache=False).logits[0, -1]
        found = answer_logits(network, row)[row.answer_at.tolist().index(end)].detach()
        assert float((found - expected).abs().max()) < 1e-4
        assert builder.answers[int(right)][0] == "trend"
    assert len(row.answer) == 6
    assert row.generic.tolist() == [True, False] * 3


def test_labels_are_the_statistics_of_the_window_before_the_boundary(config: LoraTrainConfig) -> None:
    builder = lora_builder(config.base)
    bars = simulate(np.random.default_rng(6), 1, builder.profile.region_bars).series(0)
    row = make_row(builder, np.random.default_rng(7), "AAPL", bars, 5)
    kind, window = builder.profile.generic_class, builder.profile.window_bars
    for at, right in zip(row.answer_at[::2], row.answer[::2], strict=True):
        length = int(row.positions[at]) + 1 - len(builder.generic_entry)
        trunk = builder.decode(row.tokens[:length])
        fill = trunk.count("\n") - builder.decode(builder.prefix).count("\n") - 1
        (expected,) = truths([kind], [bars[fill - window : fill]])
        assert builder.answers[int(right)][1] == expected[kind.name]


def test_it_learns_goes_on_and_is_loaded_by_name_of_its_folder(config: LoraTrainConfig, tiny_chat: Path) -> None:
    reports: list[Progress] = []
    straight = train_lora(replace(config, out=config.out / "a"), reports.append)
    assert [one.step for one in reports] == [1, 2, 3, 4]
    assert reports[-1].loss < reports[0].loss
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
    assert "4 steps of 2 simulated series, 48 answers" in written
    assert f"- right: {reports[-1].right['right']:.3f}" in written
    assert json.loads((straight / "adapter_config.json").read_text())["r"] == 4
    files = find_model(str(tiny_chat), str(straight))
    builder = load_builder(files)
    assert (builder.profile.name, builder.profile.stem) == (f"{tiny_chat.name}-trend", "Trend:")
    assert builder.profile.digest() == lora_builder(config.base).profile.digest()
    assert builder.profile.class_of_question("What is the trend?") is not None
    load_backbone(files.directory, total_cells=8, adapter=files.adapter)
