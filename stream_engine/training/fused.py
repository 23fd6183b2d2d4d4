"""The Llama forward of a training batch, arranged for a CPU: fewer and narrower passes over the activations.

The same function of the same parameters as the transformers module (a test compares them). Matrix products and
attention run in `dtype`; the residual stream, the norms and the loss stay in fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM


def hidden_states(
    network: LlamaForCausalLM, tokens: Tensor, positions: Tensor, mask: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Normed hidden states after the last layer and raw ones before it, both fp32 [B, T, width].

    tokens, positions: int64 [B, T]; mask: bool [B, 1, T, T], true where a key is seen. Heads are not shared (no
    grouped queries).
    """
    model, config = network.model, network.config
    heads, size, eps = config.num_attention_heads, config.head_dim, config.rms_norm_eps
    stream = functional.embedding(tokens, model.embed_tokens.weight)
    below = stream
    cos, sin = (table[:, :, None, : size // 2].to(dtype) for table in model.rotary_emb(stream, positions))
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, float("-inf"))
    for layer in model.layers:
        below = stream
        attention, mlp = layer.self_attn, layer.mlp
        normed = functional.rms_norm(stream, stream.shape[-1:], layer.input_layernorm.weight, eps).to(dtype)
        joined = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]).to(dtype)
        mixed = functional.linear(normed, joined).view(*tokens.shape, 3 * heads, size)
        first, second = mixed[:, :, : 2 * heads].chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        query, key = (part.transpose(1, 2) for part in turned.chunk(2, dim=2))
        # Written out: at these lengths the backward of the fused CPU kernel takes twice as long.
        scores = torch.matmul(query * size**-0.5, key.transpose(-1, -2)) + bias
        seen = torch.matmul(torch.softmax(scores, dim=-1), mixed[:, :, 2 * heads :].transpose(1, 2))
        stream = stream + functional.linear(seen.transpose(1, 2).flatten(2), attention.o_proj.weight.to(dtype))
        normed = functional.rms_norm(stream, stream.shape[-1:], layer.post_attention_layernorm.weight, eps)
        joined = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]).to(dtype)
        gate, up = functional.linear(normed.to(dtype), joined).chunk(2, dim=-1)
        stream = stream + functional.linear(functional.silu(gate) * up, mlp.down_proj.weight.to(dtype))
    return functional.rms_norm(stream, stream.shape[-1:], model.norm.weight, eps), below
