"""LoRA adapters: merged into plain weights, beside quantized ones, refused where they are another model's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from stream_engine.calibrate.probe import probe
from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.model.backbones.loader import load_backbone, quiet_libraries
from stream_engine.model.forward.step import Branch, Segment
from stream_engine.model.hub.fetch import is_fetched
from stream_engine.model.hub.files import ADAPTERS, adapted_model, adapter_names
from stream_engine.model.profile import Profile
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_model import load_runner, model_builder, model_files

SEGMENT = Segment(base=0, length=0, append=tuple(range(20, 60)), branches=(Branch((7, 8), 40),))
TOKENS = torch.tensor([[*range(20, 60), 7, 8]])


@pytest.fixture(scope="module")
def adapter(tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapter")
    base = AutoModelForCausalLM.from_pretrained(str(tiny_chat), dtype=torch.float32)
    torch.manual_seed(2)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    with quiet_libraries():
        get_peft_model(base, config).save_pretrained(str(folder))
    return folder


def last_logits(folder: Path, adapter: Path | None = None, **options: str) -> torch.Tensor:
    return load_backbone(folder, total_cells=64, adapter=adapter, **options).forward([SEGMENT]).rows[0]  # type: ignore[arg-type]


def test_a_merged_adapter_is_the_unmerged_one(tiny_chat: Path, adapter: Path) -> None:
    from peft import PeftModel

    base = AutoModelForCausalLM.from_pretrained(str(tiny_chat), dtype=torch.float32)
    with quiet_libraries():
        unmerged = PeftModel.from_pretrained(base, str(adapter)).eval()
    with torch.inference_mode():
        expected = unmerged(input_ids=TOKENS, use_cache=False).logits[0, -1]
    found = last_logits(tiny_chat, adapter)
    assert float((found - expected).abs().max()) < 1e-3
    assert float((found - last_logits(tiny_chat)).abs().max()) > 0.1, "it changes what the model says"


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_quantized_weights_load_and_take_an_adapter_beside_them(tiny_chat: Path, adapter: Path, kind: str) -> None:
    exact, coarse = last_logits(tiny_chat), last_logits(tiny_chat, quantization=kind)
    assert torch.isfinite(coarse).all()
    assert 0 < float((coarse - exact).abs().max()) < float(exact.std()) * 3
    tuned = last_logits(tiny_chat, adapter, quantization=kind)
    assert float((tuned - coarse).abs().max()) > 0.1


def test_an_adapter_of_another_model_is_told_so(adapter: Path, tiny_chat: Path, tmp_path: Path) -> None:
    for path in tiny_chat.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, tmp_path)
    vocabulary = LlamaConfig.from_pretrained(str(tiny_chat)).vocab_size
    other = LlamaConfig(
        vocab_size=vocabulary, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    )
    LlamaForCausalLM(other).save_pretrained(tmp_path)
    settings = EngineSettings(model=str(tmp_path), adapter=str(adapter), threads=1)
    builder = model_builder(settings, model_files(settings))
    with pytest.raises(ConfigError, match=r"engine\.model = .*engine\.adapter = .*does not fit the model"):
        load_runner(settings, builder, budget_shape(settings, builder))


@pytest.mark.parametrize("name", adapter_names())
def test_an_adapter_of_the_package_is_small_and_whole(name: str) -> None:
    folder = ADAPTERS / name
    assert 1e6 < (folder / "adapter_model.safetensors").stat().st_size <= 12e6
    profile = Profile.load(folder)
    assert profile.name == name
    assert profile.questions[profile.generic_class.name]
    card = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert adapted_model(name) in card


def test_there_is_one() -> None:
    assert adapter_names() == ("smollm2-135m-trend",)


@pytest.mark.skipif(not is_fetched("smollm2-135m"), reason="stream-engine models get smollm2-135m")
def test_the_adapter_makes_a_small_general_model_answer() -> None:
    plain = EngineSettings(model="smollm2-135m", threads=1)
    assert probe(plain, 4, 0, lambda done, total: None).gate.fired == 0
    found = probe(replace(plain, adapter="smollm2-135m-trend"), 12, 0, lambda done, total: None)
    assert found.tells_directions
    assert found.gate.fired >= 6
    assert found.gate.right >= 0.8 * found.gate.fired
