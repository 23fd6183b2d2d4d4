"""Unpacks a GGUF file into a folder that loads quickly: a memory map instead of a dequantization at each start."""

from __future__ import annotations

from pathlib import Path

from stream_engine.util.atomic_file import draft_of

WIDTH = "float16"
"""Of the unpacked weights: the scales in the file are of this width."""


class UnpackError(ValueError):
    """The file is no model that can be served; the message says why."""


def unpack(file: Path, folder: Path) -> None:
    """Write the weights (safetensors), configuration and tokenizer of a GGUF file into `folder`.

    The folder appears whole or not at all. Raises UnpackError for a file that is not GGUF, or of an architecture
    that `transformers` cannot read or the engine cannot serve.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from stream_engine.model.backbones.families import UnsupportedModelError, check_config
    from stream_engine.model.backbones.loader import quiet_libraries

    folder.parent.mkdir(parents=True, exist_ok=True)
    with quiet_libraries(), draft_of(folder) as draft:
        try:
            model = AutoModelForCausalLM.from_pretrained(
                str(file.parent),
                gguf_file=file.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
            )
            tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        except Exception as error:  # the reader raises whatever a malformed header leads it to
            raise UnpackError(f"{file} cannot be read as GGUF: {error}") from error
        try:
            check_config(model.config)
        except UnsupportedModelError as error:
            raise UnpackError(f"{file}: {error}") from error
        # The weights are plain now: nothing about GGUF is to be found in what is saved.
        model.hf_quantizer = None
        vars(model.config).pop("quantization_config", None)
        model.to(getattr(torch, WIDTH)).save_pretrained(draft)
        tokenizer.save_pretrained(draft)
