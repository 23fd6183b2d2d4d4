"""A real, tiny GGUF file: the folder that it is unpacked to says what the file's model says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from stream_engine.model.hub.files import find_model
from stream_engine.model.hub.gguf import UnpackError, unpack
from stream_engine.model.render.rendering import load_builder
from tests.support.gguf_file import write


def test_the_unpacked_folder_is_the_files_model(tiny_chat: Path, tmp_path: Path) -> None:
    write(tiny_chat, tmp_path / "tiny.gguf")
    unpack(tmp_path / "tiny.gguf", tmp_path / "cache" / "tiny")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tiny"], "no staging folder is left"
    before = AutoModelForCausalLM.from_pretrained(str(tiny_chat), dtype=torch.float32).eval()
    after = AutoModelForCausalLM.from_pretrained(str(tmp_path / "cache" / "tiny"), dtype=torch.float32).eval()
    tokens = torch.arange(40, 90)[None]
    with torch.inference_mode():
        wanted, found = (model(input_ids=tokens, use_cache=False).logits[0] for model in (before, after))
    assert float((found - wanted).abs().mean()) < 0.05 * float(wanted.std()), "but for the blocks' rounding"
    builder = load_builder(find_model(str(tmp_path / "cache" / "tiny")))
    original = load_builder(find_model(str(tiny_chat)))
    assert builder.prefix == original.prefix
    assert builder.query_entry("What is the trend?") == original.query_entry("What is the trend?")


def test_an_architecture_that_is_not_served_is_refused(tiny_chat: Path, tmp_path: Path) -> None:
    write(tiny_chat, tmp_path / "odd.gguf", "rwkv6")
    with pytest.raises(UnpackError, match=r"odd\.gguf"):
        unpack(tmp_path / "odd.gguf", tmp_path / "cache" / "odd")
    assert list((tmp_path / "cache").iterdir()) == []
