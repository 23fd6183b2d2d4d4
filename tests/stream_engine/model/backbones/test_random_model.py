"""Models of random weights: packed layer by layer, and run as `transformers` itself runs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bitsandbytes as bnb
import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from stream_engine.model.backbones.backbone import Backbone
from stream_engine.model.backbones.random_model import random_model
from stream_engine.model.backbones.shapes import SHAPES, Quantization
from stream_engine.model.forward.step import Branch, Segment

TINY = SHAPES["tiny"]
TOKENS = tuple(range(20, 60))
ENTRY = (7, 8)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def plain_logits(model: Any) -> torch.Tensor:
    model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        return model(input_ids=torch.tensor([[*TOKENS, *ENTRY]]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("quantization", ["nf4", "none"])
def test_the_tree_forward_is_the_plain_one(quantization: Quantization) -> None:
    model = random_model(TINY, quantization=quantization)
    backbone = Backbone(model, 64)
    found = backbone.forward([Segment(0, 0, TOKENS, (Branch(ENTRY, len(TOKENS)),))]).rows[0]
    expected = plain_logits(model)
    assert torch.isfinite(found).all()
    assert float(expected.std()) > 0.5, "logits that are all alike would agree by chance"
    assert int(found.argmax()) == int(expected.argmax())
    assert float((found - expected).abs().max()) < 0.1


def test_linear_layers_are_packed_and_the_rest_is_not() -> None:
    model = random_model(TINY)
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    packed = {name for name, module in linear.items() if isinstance(module, bnb.nn.Linear4bit)}
    assert linear.keys() - packed == {"lm_head"}
    assert len(packed) == 7 * TINY.layers
    bytes_kept = 0
    for name in packed:
        weight = linear[name].weight
        state = weight.quant_state
        assert (weight.dtype, state.quant_type, state.nested) == (torch.uint8, "nf4", True), name
        bytes_kept += weight.numel() + state.absmax.numel()
    addresses = {linear[name].weight.data_ptr() for name in packed}
    assert len(addresses) == len(packed), "shared memory would be read from a cache"
    others = [parameter for parameter in model.parameters() if parameter.dtype == torch.bfloat16]
    assert sum(parameter.numel() for parameter in others) == TINY.other_weights
    assert sum(module.in_features * module.out_features for name, module in linear.items() if name in packed) == (
        TINY.linear_weights
    )
    counted = TINY.weight_bytes("nf4")
    assert bytes_kept + 2 * TINY.other_weights == pytest.approx(counted, rel=1e-3)


def test_nothing_stays_without_memory_and_angles_are_right() -> None:
    told: list[tuple[int, int]] = []
    model = random_model(TINY, told=lambda done, layers: told.append((done, layers)))
    assert told == [(1, 2), (2, 2)]
    assert not any(parameter.is_meta for parameter in (*model.parameters(), *model.buffers()))
    config = LlamaConfig(
        hidden_size=TINY.hidden,
        num_attention_heads=TINY.heads,
        head_dim=TINY.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": TINY.rope_theta},
    )
    expected = LlamaRotaryEmbedding(config).inv_freq
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert torch.equal(model.model.rotary_emb.inv_freq, expected)


def test_a_seed_draws_the_same_model() -> None:
    first, same, other = (plain_logits(random_model(TINY, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_sizes_of_the_named_shapes() -> None:
    large = SHAPES["llama-70b"]
    assert large.linear_weights + large.other_weights == 70_553_706_496
    assert large.weight_bytes("none") == 2 * 70_553_706_496
    assert large.weight_bytes("nf4") / 2**30 == pytest.approx(36.8, abs=0.1)
    assert large.cell_bytes == 320 * 1024
    small = SHAPES["llama-8b"]
    assert small.linear_weights + small.other_weights == 8_030_261_248
