"""The configured cell budget: how many sessions `engine.kv_memory` has room for."""

from __future__ import annotations

import json
from typing import Any

from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.model.backbones.families import UnsupportedModelError, check_family
from stream_engine.model.hub.files import CONFIG_FILE, ModelFiles
from stream_engine.model.render.rendering import Builder
from stream_engine.process.configured_model import model_files
from stream_engine.session.cell_budget import BudgetShape
from stream_engine.util.memory import MemorySize, machine_memory

BRANCH_CELLS = 128
"""Cells that an extent of the pool has at least: questions longer than a window of bars are rare."""

TYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Another type is refused where the weights are loaded."""


def cell_bytes(settings: EngineSettings, files: ModelFiles) -> int:
    """Bytes of one token's keys and values over all layers, in the type that the model runs in. Loads no weights.

    Raises ConfigError where the model's configuration does not say."""
    try:
        config = json.loads((files.directory / CONFIG_FILE).read_text(encoding="utf-8"))
        check_family(config["model_type"])
        heads = int(config["num_attention_heads"])
        head_dim = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
        kv_heads = int(config.get("num_key_value_heads") or heads)
        layers = int(config["num_hidden_layers"])
    except UnsupportedModelError as error:
        raise ConfigError(f"engine.model = {settings.model!r}: it cannot be loaded: {error}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"engine.model = {settings.model!r}: {CONFIG_FILE} does not say how large a token's KV is: {error!r}"
        ) from error
    return layers * 2 * kv_heads * head_dim * TYPE_BYTES.get(settings.dtype, 4)


def budget_shape(settings: EngineSettings, builder: Builder) -> BudgetShape:
    """A session's slab: prefix, anchor and the largest region, and ``engine.entry_cells`` behind them. An extent
    of the pool: a window's worth. Raises ConfigError where not one session has room."""
    profile = builder.profile
    head = len(builder.prefix) + builder.max_anchor_tokens
    slab = head + profile.region_bars * builder.tokens_per_bar + settings.entry_cells
    extent = max(head + profile.window_bars * builder.tokens_per_bar, BRANCH_CELLS)
    each = cell_bytes(settings, model_files(settings))
    granted = MemorySize.parse(settings.kv_memory).of(_memory_of(settings.device))
    try:
        return BudgetShape.fit(granted, slab=slab, extent=extent, prefix=len(builder.prefix), cell_bytes=each)
    except ValueError as error:
        raise ConfigError(f"engine.kv_memory = {settings.kv_memory!r}: too little: {error}") from error


def _memory_of(device: str) -> int:
    """Bytes of the memory that the model's device has."""
    if device.startswith("cuda"):
        import torch

        if torch.cuda.is_available():
            properties: Any = torch.cuda.get_device_properties(device)
            return int(properties.total_memory)
    return machine_memory()
