"""The training loop: learns, resumes to the very weights of an uninterrupted run, writes a folder that opens."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.training.loop import WEIGHTS_FILE, Progress, TrainConfig, rate, train


def config(out: Path) -> TrainConfig:
    return TrainConfig(
        out=out,
        steps=6,
        batch=4,
        boundaries=2,
        warmup=2,
        width=64,
        layers=2,
        feed_forward=64,
        amp=False,
        report_every=1,
        evaluate_every=3,
        evaluate_series=4,
        checkpoint_every=3,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Progress]]:
    reports: list[Progress] = []
    out = train(config(tmp_path_factory.mktemp("whole")), reports.append)
    return out, reports


def test_a_short_run_learns_and_reports(whole: tuple[Path, list[Progress]]) -> None:
    _, reports = whole
    assert [report.step for report in reports] == [1, 2, 3, 4, 5, 6]
    assert reports[-1].loss < reports[0].loss - 0.5
    assert [bool(report.right) for report in reports] == [False, False, True, False, False, True]
    assert set(reports[-1].right) >= {"generic", "trend"}


def test_a_resumed_run_gives_the_weights_of_an_uninterrupted_one(
    whole: tuple[Path, list[Progress]], tmp_path: Path
) -> None:
    halves = config(tmp_path)
    train(halves, lambda report: None, stop_after=3)
    reports: list[Progress] = []
    train(halves, reports.append)
    assert [report.step for report in reports] == [4, 5, 6]
    first, second = load_file(whole[0] / WEIGHTS_FILE), load_file(tmp_path / WEIGHTS_FILE)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_another_seed_gives_other_weights(whole: tuple[Path, list[Progress]], tmp_path: Path) -> None:
    train(replace(config(tmp_path), seed=8), lambda report: None, stop_after=1)
    first, second = load_file(whole[0] / WEIGHTS_FILE), load_file(tmp_path / WEIGHTS_FILE)
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_the_folder_opens_with_the_builder_and_with_transformers(whole: tuple[Path, list[Progress]]) -> None:
    out, _ = whole
    builder = TokenBuilder.load(out)
    assert builder.profile.digest() == TokenBuilder.load(EMBEDDED).profile.digest()
    network = AutoModelForCausalLM.from_pretrained(out)
    assert network.config.vocab_size == builder.vocab_size
    assert network.get_input_embeddings().weight is network.get_output_embeddings().weight
    tokenizer = AutoTokenizer.from_pretrained(out)
    text = tokenizer.apply_chat_template(
        [{"role": "system", "content": builder.profile.system}, {"role": "user", "content": "Trend?"}],
        tokenize=False,
        add_generation_prompt=True,
    )
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert ids == builder.prefix + builder.query_entry("Trend?")


def test_rate_warms_up_then_falls_to_its_floor(tmp_path: Path) -> None:
    plan = TrainConfig(out=tmp_path, steps=100, warmup=10, peak_rate=1.0, final_share=0.1)
    assert rate(plan, 0) == pytest.approx(0.1)
    assert rate(plan, 10) == pytest.approx(1.0)
    assert rate(plan, 55) == pytest.approx(0.55)
    assert rate(plan, 100) == pytest.approx(0.1)
    assert all(math.isfinite(rate(plan, step)) for step in range(101))
