"""A calibration from beginning to end: series through the engine, the pairs, the choice, the file."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stream_engine.calibrate.choose import (
    CALIBRATING,
    EARLIER,
    LATER,
    PILOT,
    RECORDED,
    SIMULATED,
    Chosen,
    Demands,
    choose,
    curve_of,
    samples_of,
)
from stream_engine.calibrate.pairs import COLUMNS, pairs_of
from stream_engine.calibrate.replay import Moment, Replay
from stream_engine.config.engine import EngineSettings
from stream_engine.data.series import Series, simulated_series
from stream_engine.decision.calibration import CALIBRATION_FILE, Calibration, SeriesFacts
from stream_engine.engine.engine import Engine
from stream_engine.model.render.fast_set import SurfaceForm, served_forms
from stream_engine.model.render.tokenizer import load_tokenizer
from stream_engine.process.build import build_engine
from stream_engine.process.configured_model import model_builder, model_files, model_identity
from stream_engine.util.timestamps import to_the_second

SESSIONS = 8
"""Simulated series that share their steps."""

PILOT_SHARE = 10
"""One pilot, to fix the grid, for so many certifying simulated windows, beside them; without simulated windows
every so-many-th calibrating one is a pilot."""

PAIRS_FILE, CURVE_FILE, CURVE_TABLE = "pairs.parquet", "curve.parquet", "curve.csv"

Progress = Callable[[str, int, int], None]
"""What is done at present, how many windows of it are done, and how many there are."""


class NothingToCalibrate(ValueError):
    """There is no window to calibrate on: the series are too short, and none is simulated."""


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What to calibrate for and on: ``windows`` is the most of one recorded series (its latest), ``simulated`` the
    number of certifying simulated windows; ``earlier_half`` keeps the later half of each series for the report."""

    demands: Demands
    seed: int = 0
    simulated: int = 2_000
    windows: int = 1_000
    earlier_half: bool = False


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """The file, the pairs it rests on, each class's choice, the curves, the class that the generic header answers,
    and the fast-answer set with its tokens."""

    calibration: Calibration
    pairs: pl.DataFrame
    chosen: dict[str, Chosen]
    curve: pl.DataFrame
    generic: str
    forms: dict[str, dict[str, tuple[SurfaceForm, ...]]]

    def save(self, folder: Path) -> None:
        """Pairs and curve as Parquet, the curve as CSV too, and the calibration. The metadata of the pairs' file
        tells what each column means."""
        folder.mkdir(parents=True, exist_ok=True)
        meanings = {name: column.meaning for name, column in COLUMNS.items()}
        self.pairs.write_parquet(folder / PAIRS_FILE, metadata=meanings)
        self.curve.write_parquet(folder / CURVE_FILE)
        self.curve.write_csv(folder / CURVE_TABLE, float_precision=5)
        self.calibration.save(folder / CALIBRATION_FILE)


def run(
    settings: EngineSettings, series: Sequence[Series], plan: CalibrationPlan, progress: Progress
) -> CalibrationRun:
    """Calibrate the configured model, without any calibration that it has.

    Raises NothingToCalibrate; NoSingleToken where an answer word has no token; ConfigError for the settings."""
    settings = dataclasses.replace(
        settings,
        calibration="none",
        preposition="fused",
        promoted_questions=0,
    )
    files = model_files(settings)
    builder = model_builder(settings, files)
    words = {answer_class.name: answer_class.words for answer_class in builder.profile.classes}
    forms = served_forms(load_tokenizer(files.directory), words, builder.answers)
    long_enough = [candidate for candidate in series if len(candidate.bars) >= builder.profile.window_bars]
    if not long_enough and not plan.simulated:
        raise NothingToCalibrate(f"no series has {builder.profile.window_bars} bars, and none is to be simulated")
    pairs, facts = collect(build_engine(settings), long_enough, plan, progress)
    generic = builder.profile.generic_class.name
    if not set(CALIBRATING) & set(samples_of(pairs)):
        count = pairs.select("series", "window").n_unique()
        raise NothingToCalibrate(
            f"{count} windows are too few: every {PILOT_SHARE}th fixes the thresholds to try, and none is left to "
            "choose among them; simulate some, or bring more bars"
        )
    chosen = choose(pairs, builder.profile, plan.demands)
    calibration = Calibration(
        identity=model_identity(settings, builder),
        r_max=plan.demands.r_max,
        delta=plan.demands.delta,
        created=to_the_second(time.time_ns() // 1_000),
        series=tuple(facts),
        classes={name: choice.calibration for name, choice in chosen.items()},
    )
    return CalibrationRun(
        calibration=calibration,
        pairs=pairs,
        chosen=chosen,
        curve=curve_of(pairs, chosen),
        generic=generic,
        forms=forms,
    )


def collect(
    engine: Engine, series: Sequence[Series], plan: CalibrationPlan, progress: Progress
) -> tuple[pl.DataFrame, list[SeriesFacts]]:
    """Pairs of all samples, and what they were taken from."""
    replay, profile = Replay(engine, SESSIONS), engine.builder.profile
    moments: list[tuple[str, Moment]] = []
    facts: list[SeriesFacts] = []
    if plan.simulated:
        pilots = -(-plan.simulated // PILOT_SHARE)
        drawn = simulated_series(plan.seed, plan.simulated + pilots, profile.region_bars)
        for moment in _watched(replay.simulated(drawn), "simulated series", len(drawn), progress):
            moments.append((PILOT if moment.number < pilots else SIMULATED, moment))
        hashes = hashlib.sha256("".join(sample.sha256() for sample in drawn).encode())
        facts.append(SeriesFacts(f"simulated, seed {plan.seed}", hashes.hexdigest(), plan.simulated))
    for source in series:
        count = min(plan.windows, (len(source.bars) - profile.window_bars) // (profile.window_bars + 1) + 1)
        seen = list(_watched(replay.recorded(source, plan.windows), source.name, count, progress))
        facts.append(source.facts(len(seen)))
        moments += [(_sample(at, len(seen), plan), moment) for at, moment in enumerate(seen)]
    return pairs_of(engine.builder, moments), facts


def _sample(at: int, count: int, plan: CalibrationPlan) -> str:
    """Which sample a recorded window belongs to."""
    if plan.earlier_half and 2 * at >= count:
        return LATER
    if not plan.simulated and at % PILOT_SHARE == 0:
        return PILOT
    return EARLIER if plan.earlier_half else RECORDED


def _watched(moments: Iterator[Moment], what: str, total: int, progress: Progress) -> Iterator[Moment]:
    progress(what, 0, total)
    for done, moment in enumerate(moments, start=1):
        yield moment
        progress(what, done, total)
