"""The embedded model's architecture and how its embeddings start."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

from stream_engine.model.frame import MAX_LEVEL, MAX_MOVE, VOLUMES
from stream_engine.model.render.builder import TokenBuilder

_EMBEDDING_STD = 0.05


def architecture(builder: TokenBuilder, width: int = 192, layers: int = 5, feed_forward: int = 512) -> LlamaConfig:
    """Llama with heads of 32, tied embeddings and plain RoPE: about 2 million parameters by default."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10_000.0}
    return LlamaConfig(
        vocab_size=builder.vocab_size,
        hidden_size=width,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 32,
        head_dim=32,
        max_position_embeddings=2048,
        rope_parameters=rope,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=builder.end_token,
        pad_token_id=None,
        attention_dropout=0.0,
    )


def new_network(builder: TokenBuilder, config: LlamaConfig, seed: int) -> LlamaForCausalLM:
    """Random weights; levels, moves and volumes start as waves, so that neighbours are neighbours from step 0."""
    torch.manual_seed(seed)
    network = LlamaForCausalLM(config)
    table = network.get_input_embeddings().weight
    width = table.shape[1]
    levels = waves(np.arange(-MAX_LEVEL, MAX_LEVEL + 1), width, shortest=4.0, longest=4.0 * MAX_LEVEL)
    moves = waves(np.arange(-MAX_MOVE, MAX_MOVE + 1), width, shortest=4.0, longest=4.0 * MAX_MOVE)
    volumes = waves(np.arange(VOLUMES), width, shortest=4.0, longest=4.0 * VOLUMES)
    kinds = ((builder.level_ids, levels), (builder.move_ids, moves), (builder.volume_ids, volumes))
    with torch.no_grad():
        table.normal_(0.0, _EMBEDDING_STD)
        for ids, values in kinds:
            start = torch.from_numpy(values).to(table.dtype) * (_EMBEDDING_STD * np.sqrt(2.0))
            table[torch.from_numpy(ids).long()] = 0.15 * table[torch.from_numpy(ids).long()] + start
    return network


def waves(values: NDArray[np.int64], width: int, shortest: float, longest: float) -> NDArray[np.float64]:
    """Sines and cosines of `values` at wavelengths from `shortest` to `longest`, [len(values), width]."""
    lengths = np.geomspace(shortest, longest, width // 2)
    angles = 2.0 * np.pi * values[:, None] / lengths[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
