"""``stream-engine train``: the embedded model, from simulated series."""

from __future__ import annotations

from pathlib import Path

import click

from stream_engine.cli.commands.train_lora import train_adapter
from stream_engine.cli.training_view import watch_training
from stream_engine.client.failure import Failure


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder of the model and its checkpoint; a run that stopped goes on from there.",
)
@click.option(
    "--profile",
    "profile_dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder with profile.json and questions.txt. Default: the embedded model's own.",
)
@click.option("--steps", type=click.IntRange(1), default=5200, show_default=True, help="Optimiser steps.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Series in a step.")
@click.option("--width", type=click.IntRange(32), default=192, show_default=True, help="Hidden size.")
@click.option("--layers", type=click.IntRange(1), default=5, show_default=True)
@click.option("--peak-rate", type=float, default=1.8e-3, show_default=True, help="Highest learning rate.")
@click.option("--seed", type=int, default=7, show_default=True, help="With shards, decides the weights.")
@click.option("--shards", type=click.IntRange(1), default=2, show_default=True, help="CPU cores to use.")
@click.option("--amp/--no-amp", default=True, show_default=True, help="Products in bfloat16.")
@click.option("--stop-after", type=click.IntRange(1), help="End early at this step, with a checkpoint.")
@click.option("--base", help="Model to tune instead (as engine.model names it). Needs --lora.")
@click.option("--lora", is_flag=True, help="Train a LoRA adapter of --base: 900 steps of 8 series by default.")
def train(
    out: Path,
    profile_dir: Path | None,
    steps: int,
    batch: int,
    width: int,
    layers: int,
    peak_rate: float,
    seed: int,
    shards: int,
    amp: bool,
    stop_after: int | None,
    base: str | None,
    lora: bool,
) -> None:
    """Train the embedded model on simulated series, on the CPU.

    Series of many volatilities, regimes, tick sizes and gaps are simulated as it goes; no recorded data is read.
    Ctrl-C loses nothing since the last checkpoint: the same command goes on from it.

    \b
    Examples:
      stream-engine train --out runs/mine
      stream-engine train --out runs/small --width 96 --layers 2 --steps 1000
      stream-engine train --base smollm2-135m --lora --out runs/adapter
    """
    if lora != (base is not None):
        raise click.UsageError("--base and --lora go together: only an adapter of a base model is tuned")
    if base is not None:
        train_adapter(base, out, stop_after)
        return
    if batch % shards:
        raise click.UsageError(f"--batch {batch} is no multiple of --shards {shards}")
    try:
        from stream_engine.training.loop import TrainConfig
        from stream_engine.training.loop import train as run
    except ImportError as error:
        raise Failure(f"{error.name} is missing: pip install 'stream-engine[engine]'") from error

    from stream_engine.model.profile import EMBEDDED

    config = TrainConfig(
        out=out,
        profile_dir=profile_dir or EMBEDDED,
        steps=steps,
        batch=batch,
        width=width,
        layers=layers,
        peak_rate=peak_rate,
        seed=seed,
        shards=shards,
        amp=amp,
    )
    folder = watch_training("training", stop_after or steps, lambda report: run(config, report, stop_after))
    click.echo(f"model in {folder}: use it with STREAM_ENGINE_ENGINE_MODEL={folder}")
