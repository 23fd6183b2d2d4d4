"""``stream-engine probe-model``: is a model fit for the fast path?"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_engine.client.failure import Failure, wrong_setting
from stream_engine.client.options import Options
from stream_engine.config.rules import ConfigError

if TYPE_CHECKING:
    from stream_engine.calibrate.probe import Probe


@click.command("probe-model")
@click.argument("model", required=False)
@click.option("--adapter", help="LoRA adapter for it: a name (stream-engine models list) or a folder.")
@click.option("--windows", type=click.IntRange(1), default=48, show_default=True, help="Simulated windows.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the simulated windows.")
@click.option("--recorded", is_flag=True, help="Real daily bars (bokeh_sampledata) instead of simulated ones.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="With --recorded: folder of further sample files.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.pass_obj
def probe_model(
    options: Options,
    model: str | None,
    adapter: str | None,
    windows: int,
    seed: int,
    recorded: bool,
    data: Path | None,
    as_json: bool,
) -> None:
    """Probe MODEL (default: the configured one) before it serves: will its gate ever fire?

    On simulated windows, or at most --windows of each recorded series: how often the gate fires at the profile's
    tau, how often it is then right, and the gaps; what it says of windows that plainly rise, fall or go nowhere;
    how long prefill and decode take.

    \b
    Examples:
      stream-engine probe-model
      stream-engine models get smollm2-135m && stream-engine probe-model smollm2-135m
      stream-engine probe-model ~/models/Qwen2.5-0.5B-Instruct --windows 100
    """
    try:
        from stream_engine.calibrate.probe import probe
        from stream_engine.data.recorded import recorded_series
        from stream_engine.data.series import Series
    except ImportError as error:
        raise Failure(f"{error.name} is missing: pip install 'stream-engine[engine]'") from error
    from rich.console import Console
    from rich.progress import Progress

    settings = options.load().engine
    if model is not None:
        settings = dataclasses.replace(settings, model=model, adapter=adapter or "")
    elif adapter is not None:
        settings = dataclasses.replace(settings, adapter=adapter)
    try:
        with Progress(console=Console(stderr=True), transient=True) as view:
            task = view.add_task("probing", total=None)

            def told(done: int, total: int) -> None:
                view.update(task, completed=done, total=total)

            series = [Series(*fields) for fields in recorded_series(data)] if recorded else []
            if recorded and not series:
                raise Failure("no recorded series here: pip install 'stream-engine[demo]'")
            found = probe(settings, windows, seed, told, series)
    except ConfigError as error:
        raise wrong_setting(error) from error
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found) | {"verdict": found.verdict()}))
    else:
        click.echo(table(found))


def table(found: Probe) -> str:
    """The report for people."""
    from stream_engine.calibrate.probe import QUANTILES
    from stream_engine.util.intervals import wilson

    def share(part: int, whole: int) -> str:
        low, high = wilson(part, whole)
        return f"{part}/{whole} = {part / max(1, whole):.3f} [{low:.3f}, {high:.3f}]" if whole else "-"

    gaps = "  ".join(f"{at:.0%} {gap:.2f}" for at, gap in zip(QUANTILES, found.gaps, strict=True))
    gate = found.gate
    lines = [
        f"model                 {found.model}",
        f"first choice a word   {share(found.in_set, gate.windows)}",
        f"gate fires, tau {found.tau:<5g} {share(gate.fired, gate.windows)}",
        f"  right of those      {share(gate.right, gate.fired)}",
        f"  same as full path   {share(gate.agree, gate.fired)}",
        f"gap, quantiles        {gaps}",
    ]
    lines += [
        f"at tau {tau:<14g} fires {judged.fired / judged.windows:.3f}, "
        f"right {judged.right / max(1, judged.fired):.3f}"
        for tau, judged in found.over_tau.items()
        if judged.fired
    ]
    if len(found.by_series) > 1:
        lines += [
            f"{name:21s} {judged.windows} windows, fires {judged.fired / judged.windows:.3f}, "
            f"right {judged.right / max(1, judged.fired):.3f}"
            for name, judged in found.by_series.items()
        ]
    for direction in dict.fromkeys(window.direction for window in found.clean):
        seen = [window for window in found.clean if window.direction == direction]
        said = ", ".join(
            f"{window.said!r} {window.gap:.2f}{'' if window.fires else ' (gate shut)'}" for window in seen
        )
        lines.append(f"clean {direction:4s}            {said}")
    lines += [
        f"prefill, decode       {found.prefill_ms:.2f} ms a token of many, {found.decode_ms:.1f} ms one token",
        f"question              {found.question_ms:.1f} ms to its first token, one of each class in a step",
        found.verdict(),
    ]
    return "\n".join(lines)
