"""The configured model: its files, its renderer, its weights, and what it is called by a calibration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.decision.calibration import Identity
from stream_engine.model.forward.step import Segment
from stream_engine.model.hub.files import ModelFiles, ModelNotFound, find_model
from stream_engine.model.hub.weights import weights_sha256
from stream_engine.model.render.rendering import Builder, load_builder
from stream_engine.session.cell_budget import BudgetShape

if TYPE_CHECKING:
    from stream_engine.model.backbones.model_runner import ModelRunner


def model_files(settings: EngineSettings) -> ModelFiles:
    """The configured model's files, fetched from the hub where need be. Raises ConfigError where they cannot be
    had."""
    try:
        return find_model(settings.model, settings.adapter)
    except ModelNotFound as error:
        name = "adapter" if error.adapter else "model"
        raise ConfigError(f"engine.{name} = {getattr(settings, name)!r}: {error}") from error


def model_directory(settings: EngineSettings) -> Path:
    """Folder that the model's calibration lies in: its own, or its adapter's. Raises as `model_files`."""
    return model_files(settings).home


def model_builder(settings: EngineSettings, files: ModelFiles) -> Builder:
    """The model's renderer. Raises ConfigError where profile and tokenizer do not fit."""
    try:
        return load_builder(files)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"engine.model = {settings.model!r}: {error}") from error


def model_identity(settings: EngineSettings, builder: Builder) -> Identity:
    """What the model's gaps depend on, as it is served with these settings."""
    profile = builder.profile
    words: dict[str, dict[str, tuple[int, ...]]] = {}
    for token, (kind, word) in sorted(builder.answers.items()):
        forms = words.setdefault(kind, {})
        forms[word] = (*forms.get(word, ()), token)
    return Identity(
        model=profile.name,
        weights_sha256=weights_sha256(*model_files(settings).weights),
        profile_digest=profile.digest(),
        prompt=f"{builder.decode(builder.prefix)}...{builder.decode(builder.generic_entry)}",
        fast_answers=words,
        window_bars=profile.window_bars,
        region_bars=profile.region_bars,
        dtype=settings.dtype,
        quantization=settings.quantization,
    )


def load_runner(settings: EngineSettings, builder: Builder, shape: BudgetShape) -> ModelRunner:
    """Load the weights (the slow part) and make the frozen prefix resident."""
    import torch

    from stream_engine.model.backbones.loader import load_backbone
    from stream_engine.model.backbones.model_runner import ModelRunner

    torch.set_num_threads(settings.threads or max(1, (os.cpu_count() or 2) - 1))
    files = model_files(settings)
    try:
        backbone = load_backbone(
            files.directory,
            total_cells=shape.cells,
            device=settings.device,
            dtype=settings.dtype,
            quantization=None if settings.quantization == "none" else settings.quantization,
            adapter=files.adapter,
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        also = f", engine.adapter = {settings.adapter!r}" if settings.adapter else ""
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"engine.model = {settings.model!r}{also}: it cannot be loaded: {reason}") from error
    runner = ModelRunner(backbone, sorted(builder.answers))
    runner.run([Segment(shape.prefix_base, 0, builder.prefix)])
    return runner
