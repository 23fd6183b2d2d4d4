"""Causal language models of random weights: any size without a download, for what depends on the size alone.

A step takes the time that it would take with trained weights of the same shape, type and layout. What the model
says means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from stream_engine.model.backbones.loader import quantization_config, quiet_libraries
from stream_engine.model.backbones.shapes import ModelShape, Quantization
from stream_engine.model.forward.attention import ATTENTION, register

NOT_QUANTIZED = ["lm_head"]
"""As transformers loads quantized models: the output layer keeps its width."""


def random_model(
    shape: ModelShape,
    *,
    quantization: Quantization = "nf4",
    device: str = "cpu",
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
    told: Callable[[int, int], None] = lambda done, layers: None,
) -> Any:
    """A Llama of this shape on `device`, as `Backbone` takes it.

    quantization: "nf4" packs the linear layers inside the blocks (double quantization, computed in `dtype`); the
        rest, and everything with "none", is in `dtype`. No more than one layer is ever there unpacked, and every
        layer has memory of its own, so a step reads as many bytes as with trained weights.
    told: called with the number of blocks that are ready, and of all.
    Raises torch.OutOfMemoryError where the device has no room.
    """
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.positions,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=False,
    )
    register()
    with quiet_libraries():
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=ATTENTION)
        if quantization == "nf4":
            from transformers.integrations.bitsandbytes import replace_with_bnb_linear

            settings = quantization_config("nf4", dtype)
            model = replace_with_bnb_linear(model, NOT_QUANTIZED, settings)
    # Made anew, not moved: its buffers are computed from the configuration, and they stay float32.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    for number, block in enumerate(model.model.layers):
        _fill(block, device, generator)
        told(number + 1, shape.layers)
    _fill(model, device, generator)
    return model.eval().requires_grad_(False)


def _fill(module: nn.Module, device: str, generator: torch.Generator) -> None:
    """Give every parameter that is still on the meta device its memory and values."""
    for owner in module.modules():
        for name, parameter in list(owner.named_parameters(recurse=False)):
            if parameter.is_meta:
                setattr(owner, name, _materialised(owner, parameter, device, generator))


def _materialised(
    owner: nn.Module, parameter: nn.Parameter, device: str, generator: torch.Generator
) -> nn.Parameter:
    value = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
    if parameter.ndim == 1:
        return nn.Parameter(value.fill_(1.0), requires_grad=False)  # a norm
    # Outputs of the size of their inputs, so that no layer overflows: 1 / sqrt(inputs). Embeddings are of size 1.
    scale = 1.0 if isinstance(owner, nn.Embedding) else parameter.shape[1] ** -0.5
    value.normal_(0.0, scale, generator=generator)
    kind = type(parameter)
    if kind.__name__ != "Params4bit":
        return nn.Parameter(value, requires_grad=False)
    # As transformers does when it loads a checkpoint: `to` quantizes on the device and drops what it was given.
    packed: Any = kind(value, requires_grad=False, **parameter.__dict__)
    return cast(nn.Parameter, packed.to(value.device))
