"""Loads a causal language model for the tree forward. Never touches the network for a local directory."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig
from transformers.utils import logging as transformers_logging

from stream_engine.model.backbones.backbone import Backbone
from stream_engine.model.backbones.families import check_config
from stream_engine.model.forward.attention import ATTENTION, register

BitsAndBytes = Literal["nf4", "int8"]


def load_backbone(
    model: str | Path,
    *,
    total_cells: int,
    device: str = "cpu",
    dtype: str | torch.dtype | None = None,
    quantization: BitsAndBytes | None = None,
    adapter: Path | None = None,
) -> Backbone:
    """Load a model directory (or a hub id) and give it a KV store of `total_cells` tokens.

    dtype: weights and KV; by default float32 on a CPU (exactness) and bfloat16 elsewhere.
    quantization: "nf4" or "int8" weights through bitsandbytes; KV stays in `dtype`.
    adapter: folder of a LoRA adapter made for these weights; it is merged into them, but for quantized ones.
    Raises FileNotFoundError for a directory that is not there, UnsupportedModelError for a family that is not
    served exactly, ValueError for an adapter of another model.
    """
    source, local = _source(model)
    width = resolve_dtype(dtype, device)
    with quiet_libraries():
        config = AutoConfig.from_pretrained(source, local_files_only=local)
        check_config(config)
        register()
        options: dict[str, Any] = {}
        if quantization is not None:
            options["quantization_config"] = quantization_config(quantization, width)
            options["device_map"] = {"": device}
        loaded = AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype=width, attn_implementation=ATTENTION, local_files_only=local, **options
        )
    if quantization is None:
        loaded = loaded.to(device)
    if adapter is not None:
        loaded = with_adapter(loaded, adapter, merge=quantization is None)
    return Backbone(loaded, total_cells)


def with_adapter(model: Any, adapter: Path, merge: bool) -> Any:
    """The model with a LoRA adapter: its weights changed, or, without `merge`, small products beside each layer.

    Raises ValueError where the adapter's shapes are another model's.
    """
    try:
        with quiet_libraries():
            from peft import PeftModel

            adapted = PeftModel.from_pretrained(model, str(adapter))
    except (RuntimeError, ValueError, KeyError) as error:  # what peft raises, by what does not fit
        reason = str(error).splitlines()[0]
        raise ValueError(f"the adapter in {adapter} does not fit the model: {reason}") from error
    return adapted.merge_and_unload() if merge else adapted.get_base_model()


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Loading shows no progress bars, and none of what the libraries say to each other's authors."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers for a renamed property
        yield


def resolve_dtype(dtype: str | torch.dtype | None, device: str) -> torch.dtype:
    """The torch dtype of a name such as "bfloat16", or the device's default.

    Raises ValueError for another name.
    """
    if dtype is None:
        return torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"dtype {dtype!r} is not one of float32, bfloat16, float16")
    return found


def quantization_config(kind: BitsAndBytes, compute: torch.dtype) -> Any:
    """bitsandbytes settings: NF4 with double quantization, or LLM.int8. Raises ValueError for another kind."""
    if kind == "nf4":
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=compute,
        )
    if kind == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    raise ValueError(f"quantization {kind!r} is not one of nf4, int8")


def _source(model: str | Path) -> tuple[str, bool]:
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path), True
    if isinstance(model, Path) or str(model).startswith(("/", ".", "~")):
        raise FileNotFoundError(f"no model directory at {path}")
    return str(model), False
