"""``stream-engine train --base MODEL --lora``: an adapter that makes a general model answer from its header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from stream_engine.cli.training_view import watch_training
from stream_engine.client.failure import Failure

TAKEN = ("steps", "batch", "peak_rate", "seed")
"""Options of ``train`` that mean the same here; the others are refused."""


def train_adapter(base: str, out: Path, stop_after: int | None) -> None:
    """Train with what was given on the command line, and the adapter's own defaults for the rest."""
    given = _given()
    try:
        from stream_engine.model.hub.files import ModelNotFound, find_model
        from stream_engine.training.lora import LoraTrainConfig, train_lora
    except ImportError as error:
        raise Failure(f"{error.name} is missing: pip install 'stream-engine[engine]'") from error

    try:
        config = LoraTrainConfig(base=find_model(base), out=out, **given)
    except ModelNotFound as error:
        raise Failure(f"--base {base}: {error}") from error
    folder = watch_training(
        f"adapter of {base}",
        stop_after or config.steps,
        lambda report: train_lora(config, report, stop_after),
    )
    click.echo(f"adapter in {folder}: STREAM_ENGINE_ENGINE_MODEL={base} STREAM_ENGINE_ENGINE_ADAPTER={folder}")


def _given() -> dict[str, Any]:
    context = click.get_current_context()
    known = {"out", "base", "lora", "stop_after", *TAKEN}
    given = {name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    if given - known:
        raise click.UsageError(f"not with --lora: {', '.join(f'--{name}' for name in sorted(given - known))}")
    return {name: context.params[name] for name in TAKEN if name in given}
