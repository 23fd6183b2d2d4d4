"""A real, tiny GGUF file for tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quants
from transformers import AutoModelForCausalLM

from stream_engine.model.hub.files import find_model
from stream_engine.model.render.rendering import load_builder

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_name(name: str) -> str:
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    name = name.replace("model.layers.", "blk.").replace("model.embed_tokens", "token_embd")
    return name.replace("model.norm", "output_norm")


def interleaved(value: np.ndarray, heads: int) -> np.ndarray:
    """Query and key rows in the order that the format keeps them: the two halves of a rotation side by side."""
    rows, width = value.shape
    return value.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def write(tiny_chat: Path, file: Path, architecture: str = "llama") -> None:
    """The tiny model as a GGUF file, its matrices as blocks of 8 bits."""
    model = AutoModelForCausalLM.from_pretrained(str(tiny_chat), dtype=torch.float32)
    config, tokenizer = model.config, load_builder(find_model(str(tiny_chat)))._tokenizer  # type: ignore[attr-defined]
    writer = GGUFWriter(str(file), architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    vocabulary = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1])
    added = tokenizer.get_added_tokens_decoder()
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([text for text, _ in vocabulary])
    writer.add_token_types([TokenType.CONTROL if token in added else TokenType.NORMAL for _, token in vocabulary])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    end = tokenizer.token_to_id("<|im_end|>")
    writer.add_eos_token_id(end)
    writer.add_bos_token_id(tokenizer.token_to_id("<|im_start|>"))
    writer.add_chat_template((tiny_chat / "chat_template.jinja").read_text())
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        value = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            value = interleaved(value, heads)
        if value.ndim == 2 and value.shape[1] % 32 == 0:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(gguf_name(name), quants.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
