"""Pre-positioning measured on a GPU with a model of the paper's size: ``python -m loadgen.gpu``. No network."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import click

from stream_engine.client.failure import Failure
from stream_engine.client.signals import exit_on_terminate
from stream_engine.model.backbones.shapes import SHAPES, Quantization


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--shape", type=click.Choice(tuple(SHAPES)), default="llama-70b", show_default=True)
@click.option("--quantization", type=click.Choice(("nf4", "none")), default="nf4", show_default=True)
@click.option("--device", type=click.Choice(("cuda", "cpu")), default="cuda", show_default=True)
@click.option(
    "--context", type=click.IntRange(1), default=2048, show_default=True, help="Resident tokens of the session."
)
@click.option("--entry", type=click.IntRange(1), default=16, show_default=True, help="Tokens of the header.")
@click.option("--question", type=click.IntRange(1), default=16, show_default=True, help="Tokens of a question.")
@click.option("--repeats", type=click.IntRange(1), default=30, show_default=True, help="Of each timed step.")
@click.option(
    "--energy-seconds",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Idle, and as long again in a loop of pre-positions; 0 leaves the energy out.",
)
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write all of it here.")
def main(
    shape: str,
    quantization: str,
    device: str,
    context: int,
    entry: int,
    question: int,
    repeats: int,
    energy_seconds: float,
    file: Path | None,
) -> None:
    """Time and energy of each step of pre-positioning, on a model of random weights, beside the paper's figures.

    The weights mean nothing, so nothing is said of coverage or risk; how long a step takes depends on their
    shape, type and layout. Exit status: 0 done, 1 failed, 2 wrong usage.

    \b
    Examples:
      python -m loadgen.gpu --json gpu.json
      python -m loadgen.gpu --device cpu --shape tiny --energy-seconds 0
    """
    exit_on_terminate()
    if file is not None and not file.parent.is_dir():
        raise Failure(f"--json {file}: no folder {file.parent}", 2)
    needed = ("torch", "transformers", *(["bitsandbytes"] if quantization == "nf4" else []))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise Failure(f"not installed: {', '.join(missing)}; pip install 'stream-engine[engine]'")
    started = time.monotonic()

    def told(text: str) -> None:
        click.echo(f"{time.monotonic() - started:6.1f} s  {text}", err=True)

    told("importing torch and transformers")
    from loadgen.gpu import report as gpu_report
    from loadgen.gpu.run import Settings, run
    from loadgen.gpu.steps import Sizes

    settings = Settings(
        shape=shape,
        quantization=cast(Quantization, quantization),
        device=device,
        sizes=Sizes(context, entry, question),
        repeats=repeats,
        energy_seconds=energy_seconds,
    )
    outcome = run(settings, told)
    told("done")
    gpu_report.show(settings, outcome)
    if file is not None:
        file.write_bytes(gpu_report.encode(settings, outcome))
        click.echo(f"written: {file}", err=True)


if __name__ == "__main__":
    main()
