"""``stream-engine calibrate``: the gate's threshold from recorded data, with a guarantee."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_engine.client.failure import Failure, wrong_setting
from stream_engine.client.options import Options
from stream_engine.client.signals import exit_on_terminate
from stream_engine.config.config import Config
from stream_engine.config.rules import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from stream_engine.data.series import Series

TOPIC = "topic:"
SAMPLE = "sample"
REPORT_FILE = "report.txt"


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the calibration, pairs, curve, plots and report.",
)
@click.option("--r-max", type=click.FloatRange(0, 1, True, True), default=0.02, show_default=True,
              help="Budget: largest share of fast answers that may differ from the full path's.")  # fmt: skip
@click.option("--delta", type=click.FloatRange(0, 1, True, True), default=0.05, show_default=True,
              help="Largest probability that the true share is over the budget all the same.")  # fmt: skip
@click.option("--right", type=click.FloatRange(0, 1), default=0.0,
              help="Also ask for this share of fast answers to be right against the numeric truth.")  # fmt: skip
@click.option("--earlier-half", is_flag=True, help="Calibrate on each series' earlier half, report on the later.")
@click.option("--windows", type=click.IntRange(1), default=1000, show_default=True,
              help="At most this many windows of a series, the latest.")  # fmt: skip
@click.option("--simulated", type=click.IntRange(0), default=2000, show_default=True,
              help="Simulated windows that certify the budget; 0: certify on the recorded ones.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the simulated windows.")
@click.option("--symbol", help="Symbol of bars in a file that names none.")
@click.option("--model", help="Instead of the configured model: 'embedded', or a model folder.")
@click.option("--install", is_flag=True, help="Also put the calibration beside the model, where `serve` finds it.")
@click.pass_obj
def calibrate(
    options: Options,
    sources: tuple[str, ...],
    out: Path,
    r_max: float,
    delta: float,
    right: float,
    earlier_half: bool,
    windows: int,
    simulated: int,
    seed: int,
    symbol: str | None,
    model: str | None,
    install: bool,
) -> None:
    """Choose the gate's threshold on recorded bars, and say how far it can be trusted.

    SOURCE is a file as `produce` takes it, a folder of the optional sample files, `topic:NAME`, or `sample` (daily
    bars of five equities). Windows of these and of simulated series run through the engine; each shows what the
    fast path would say and what the full path says.

    \b
    Examples:
      stream-engine calibrate sample --earlier-half --out runs/calibration
      stream-engine calibrate bars.csv topic:market.bars --r-max 0.01 --out runs/mine --install
    """
    config = options.load()
    exit_on_terminate()
    try:
        from stream_engine.calibrate.choose import Demands
        from stream_engine.calibrate.plots import save_plots
        from stream_engine.calibrate.report import report
        from stream_engine.calibrate.run import CalibrationPlan, NothingToCalibrate, run
        from stream_engine.model.render.fast_set import NoSingleToken
    except ImportError as error:
        raise Failure(f"{error.name} is missing: pip install 'stream-engine[engine,calibrate]'") from error
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from stream_engine.data.series import distinct
    from stream_engine.decision.calibration import CALIBRATION_FILE
    from stream_engine.process.configured_model import model_directory

    settings = dataclasses.replace(config.engine, model=model) if model else config.engine
    plan = CalibrationPlan(
        demands=Demands(r_max, delta, right),
        seed=seed,
        simulated=simulated,
        windows=windows,
        earlier_half=earlier_half,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as view:
            steps = Steps(view)
            series = distinct(drawn for source in sources for drawn in read_source(source, symbol, config, steps))
            outcome = run(settings, series, plan, steps.show)
        outcome.save(out)
        save_plots(out, outcome.calibration, outcome.curve, outcome.generic)
        if install:
            shutil.copyfile(out / CALIBRATION_FILE, model_directory(settings) / CALIBRATION_FILE)
    except ConfigError as error:
        raise wrong_setting(error) from error
    except (NothingToCalibrate, NoSingleToken, ValueError, RuntimeError, OSError) as error:
        raise Failure(str(error)) from error
    console = Console(record=True)
    for part in report(outcome):
        console.print(part)
    (out / REPORT_FILE).write_text(console.export_text(), encoding="utf-8")
    click.echo(f"calibration, pairs, curve and plots in {out}")


class Steps:
    """One progress bar for each thing that is done."""

    def __init__(self, view: Progress) -> None:
        self._view = view
        self._tasks: dict[str, TaskID] = {}

    def show(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._view.add_task(what, total=total)
        self._view.update(self._tasks[what], completed=done, total=total)


def read_source(source: str, symbol: str | None, config: Config, steps: Steps) -> Iterator[Series]:
    """The series of one SOURCE, by symbol. Raises OSError, ValueError or RuntimeError where it cannot be read."""
    from consumers.recording import Recording, read_file, read_sample, read_topic
    from stream_engine.data.recorded import recorded_series
    from stream_engine.data.series import Series

    path = Path(source)
    if path.is_dir():
        yield from (Series(name, of, bars) for name, of, bars in recorded_series(path))
        return
    recording: Recording
    if source == SAMPLE:
        recording = read_sample()
    elif source.startswith(TOPIC):
        topic = source.removeprefix(TOPIC)
        recording = read_topic(config.kafka, topic, lambda done, total: steps.show(source, done, total))
    else:
        recording = read_file(path, symbol)
    if recording.refused:
        click.echo(f"{source}: bars not taken: {_counted(recording.refused)}", err=True)
    name = "" if source == SAMPLE else f" ({path.name})"
    yield from (Series(f"{of}{name}", of, bars) for of, bars in recording.series().items())


def _counted(refused: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(refused.items()))
