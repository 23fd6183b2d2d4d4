"""Loading a model directory."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from stream_engine.model.backbones.families import UnsupportedModelError
from stream_engine.model.backbones.loader import load_backbone, quantization_config, resolve_dtype
from stream_engine.model.forward.step import Branch, Segment


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny-llama")
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a local directory was looked up on the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_a_local_directory_loads_without_network_and_without_noise(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backbone = load_backbone(directory, total_cells=32)
    assert capfd.readouterr() == ("", "")
    plain = LlamaForCausalLM.from_pretrained(directory).eval()
    out = backbone.forward([Segment(base=0, length=0, append=(4, 5, 6), branches=(Branch((7, 8), 3),))])
    with torch.inference_mode():
        expected = plain(input_ids=torch.tensor([[4, 5, 6, 7, 8]]), use_cache=False).logits[0, -1]
    assert float((out.rows[0] - expected).abs().max()) < 1e-4
    assert backbone.num_cells == 32
    assert backbone.store.dtype is torch.float32


def test_weights_and_kv_take_the_asked_width(directory: Path) -> None:
    backbone = load_backbone(str(directory), total_cells=8, dtype="bfloat16")
    assert backbone.store.dtype is torch.bfloat16
    out = backbone.forward([Segment(base=0, length=0, append=(4,), append_logits=True)])
    assert out.rows.dtype is torch.bfloat16


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        load_backbone(tmp_path / "absent", total_cells=8)


def test_an_unsupported_family_is_refused_before_its_weights_load(tmp_path: Path) -> None:
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=11)).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match="gpt2"):
        load_backbone(tmp_path, total_cells=8)


def test_default_width_follows_the_device() -> None:
    assert resolve_dtype(None, "cpu") is torch.float32
    assert resolve_dtype(None, "cuda:1") is torch.bfloat16
    assert resolve_dtype("float16", "cpu") is torch.float16
    with pytest.raises(ValueError, match="int32"):
        resolve_dtype("int32", "cpu")


def test_quantization_names() -> None:
    nf4 = quantization_config("nf4", torch.bfloat16)
    assert nf4.load_in_4bit
    assert nf4.bnb_4bit_quant_type == "nf4"
    assert nf4.bnb_4bit_compute_dtype is torch.bfloat16
    assert quantization_config("int8", torch.float16).load_in_8bit
    with pytest.raises(ValueError, match="fp3"):
        quantization_config("fp3", torch.float16)  # type: ignore[arg-type]
