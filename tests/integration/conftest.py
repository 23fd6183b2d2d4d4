"""Fixtures of the tests that run the whole service."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def decisive_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that knows nothing and is always sure: random weights, except that only `up` and `down` can
    come out, far apart. For tests of what flows, not of what is answered."""
    # Here: most tests of this folder need neither, and they take long to import.
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from stream_engine.model.profile import EMBEDDED, PROFILE_FILE, QUESTIONS_FILE, TOKENIZER_FILE
    from stream_engine.model.render.builder import TokenBuilder

    folder = tmp_path_factory.mktemp("decisive")
    for name in (PROFILE_FILE, QUESTIONS_FILE, TOKENIZER_FILE):
        shutil.copy(EMBEDDED / name, folder)
    builder = TokenBuilder.load(folder)
    torch.manual_seed(7)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=builder.vocab_size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            tie_word_embeddings=False,
        )
    )
    up, down = (next(t for t, (_, word) in builder.answers.items() if word == name) for name in ("up", "down"))
    with torch.no_grad():
        head = network.lm_head.weight
        direction = 10 * torch.randn(head.shape[1])
        head.zero_()
        head[up], head[down] = direction, -direction
    network.save_pretrained(folder)
    return folder
