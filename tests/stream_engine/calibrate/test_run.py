"""A whole small calibration of the embedded model: the files, what they bind, and the command."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from rich.console import Console

from stream_engine.calibrate.choose import EARLIER, LATER, PILOT, RECORDED, SIMULATED, Demands
from stream_engine.calibrate.plots import ACCURACY_PLOT, RISK_PLOT, save_plots
from stream_engine.calibrate.report import report
from stream_engine.calibrate.run import (
    CURVE_FILE,
    CURVE_TABLE,
    PAIRS_FILE,
    CalibrationPlan,
    CalibrationRun,
    NothingToCalibrate,
    collect,
    run,
)
from stream_engine.cli.commands.calibrate import REPORT_FILE
from stream_engine.cli.main import cli
from stream_engine.config.engine import EngineSettings
from stream_engine.data.recorded import bars_of
from stream_engine.data.series import Series
from stream_engine.decision.calibration import CALIBRATION_FILE, Calibration
from stream_engine.engine.engine import Engine
from stream_engine.messages import Answer, Assign, Query, Record
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.build import build_engine
from stream_engine.process.configured_gate import load_calibration
from tests.support.batches import batch_of

SETTINGS = EngineSettings(threads=1)
PLAN = CalibrationPlan(Demands(0.1, 0.1), seed=4, simulated=30, windows=12, earlier_half=True)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def told() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def outcome(series: Series, told: list[tuple[str, int, int]]) -> CalibrationRun:
    return run(SETTINGS, [series], PLAN, lambda what, done, total: told.append((what, done, total)))


@pytest.fixture(scope="module")
def folder(outcome: CalibrationRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("calibration") / "made"
    outcome.save(out)
    save_plots(out, outcome.calibration, outcome.curve, outcome.generic)
    return out


def test_every_window_is_in_the_sample_that_it_should_be(outcome: CalibrationRun, builder: TokenBuilder) -> None:
    trend = outcome.pairs.filter(pl.col("class") == outcome.generic)
    counts = dict(trend.group_by("sample").len().iter_rows())
    assert counts == {PILOT: 3, SIMULATED: 30, EARLIER: 6, LATER: 6}
    earlier, later = (trend.filter(pl.col("sample") == name) for name in (EARLIER, LATER))
    assert earlier["event_time"].max() < later["event_time"].min()
    assert len(outcome.pairs) == len(trend) * len(builder.profile.classes)
    assert trend["right"].mean() > 0.7, "the model was made for this"


def test_progress_is_told_to_the_end(outcome: CalibrationRun, told: list[tuple[str, int, int]]) -> None:
    assert told[0] == ("simulated series", 0, 33)
    assert ("simulated series", 33, 33) in told
    assert told[-1] == ("recorded", 12, 12)


def test_the_file_names_what_it_was_made_of(outcome: CalibrationRun, folder: Path, builder: TokenBuilder) -> None:
    calibration = Calibration.load(folder / CALIBRATION_FILE)
    assert calibration == outcome.calibration
    simulated, recorded = calibration.series
    assert (simulated.name, simulated.windows, recorded.windows) == ("simulated, seed 4", 30, 12)
    assert recorded.first is not None
    identity = calibration.identity
    assert (identity.model, identity.window_bars, identity.dtype) == ("embedded", 32, "float32")
    assert identity.prompt.startswith("<|system|>")
    assert "<|assistant|>" in identity.prompt
    assert len(identity.weights_sha256) == 64
    assert set(calibration.classes) == {answer_class.name for answer_class in builder.profile.classes}
    assert [measured.sample for measured in calibration.classes["trend"].measured] == [
        SIMULATED,
        EARLIER,
        LATER,
    ]
    assert calibration.classes["trend"].confidence
    assert sum(len(forms) for words in outcome.forms.values() for forms in words.values()) == len(builder.answers)


def test_pairs_curve_and_plots_are_written(outcome: CalibrationRun, folder: Path) -> None:
    assert pl.read_parquet(folder / PAIRS_FILE).equals(outcome.pairs)
    assert pl.read_parquet_metadata(folder / PAIRS_FILE)["full_gap"] == "the full path's own gap, in logits"
    assert pl.read_parquet(folder / CURVE_FILE).equals(outcome.curve)
    assert pl.read_csv(folder / CURVE_TABLE).columns == outcome.curve.columns
    for name in (RISK_PLOT, ACCURACY_PLOT):
        assert (folder / name).read_bytes().startswith(PNG)


def test_an_engine_on_the_file_answers_with_its_tau_and_confidence(folder: Path, series: Series) -> None:
    settings = replace(SETTINGS, calibration=str(folder / CALIBRATION_FILE))
    engine = build_engine(settings)
    tau = Calibration.load(folder / CALIBRATION_FILE).classes["trend"].tau
    fast, full = _ask(engine, series)
    assert fast.path == "fast"
    assert (fast.tau, full.confidence) == (tau, 1.0)
    assert fast.confidence is not None
    assert 0 < fast.confidence < 1, "a few dozen windows are no proof"


def _ask(engine: Engine, series: Series) -> list[Answer]:
    """The trend of the series' last bars, on the fast and on the full path."""
    engine.assign(Assign("t", 0, 1, 0, 0))
    engine.ingest.take(batch_of((Record("XYZ", 0, 0, tuple(bars_of(series.bars))),), last=0, topic="t"))
    engine.run_until_idle()
    replies: list[Any] = []
    for path in ("fast", "full"):
        engine.queries.ask(Query("XYZ", "What is the trend?", path), replies.append)
        engine.run_until_idle()
    return replies


def test_the_report_says_tau_guarantee_and_accuracy(outcome: CalibrationRun, builder: TokenBuilder) -> None:
    text_file = io.StringIO()
    console = Console(file=text_file, width=100)
    for part in report(outcome):
        console.print(part)
    text = text_file.getvalue()
    entry = outcome.calibration.classes["trend"]
    assert f"tau = {entry.tau:g}" in text
    assert ("Guarantee:" in text) is entry.certified
    assert ("No guarantee" in text) is not entry.certified
    set_size = f"Fast-answer set: {len(builder.answers)} tokens"
    for phrase in (set_size, "divergence", "Right against the numeric truth", LATER):
        assert phrase in text


def test_without_simulated_windows_some_recorded_ones_fix_the_grid(builder: TokenBuilder, series: Series) -> None:
    engine = build_engine(replace(SETTINGS, calibration="none"))
    pairs, facts = collect(engine, [series], replace(PLAN, simulated=0, earlier_half=False), lambda *_: None)
    counts = dict(pairs.filter(pl.col("class") == "trend").group_by("sample").len().iter_rows())
    assert counts == {PILOT: 2, RECORDED: 10}
    assert [source.name for source in facts] == ["recorded"]


def test_nothing_to_calibrate_on_is_said(series: Series) -> None:
    short = Series("short", "S", series.bars[:20])
    with pytest.raises(NothingToCalibrate, match="32 bars"):
        run(SETTINGS, [short], replace(PLAN, simulated=0), lambda *_: None)
    single = Series("single", "S", series.bars[:40])
    with pytest.raises(NothingToCalibrate, match="1 windows are too few"):
        run(SETTINGS, [single], replace(PLAN, simulated=0), lambda *_: None)


def test_the_command_reads_a_file_and_puts_the_calibration_beside_the_model(
    tmp_path: Path, series: Series, builder: TokenBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in EMBEDDED.iterdir():
        if path.name != CALIBRATION_FILE:
            (model / path.name).symlink_to(path)
    bars, table = series.bars, tmp_path / "bars.csv"
    columns = {"time": bars.time_us // 1_000_000, "open": bars.open, "high": bars.high, "low": bars.low}
    pl.DataFrame(columns | {"close": bars.close, "volume": bars.volume}).write_csv(table)
    monkeypatch.setenv("STREAM_ENGINE_ENGINE_THREADS", "1")
    arguments = [str(table), "--symbol", "XYZ", "--simulated", "12", "--windows", "3", "--model", str(model)]
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["calibrate", *arguments, "--out", str(out), "--install"])
    assert done.exit_code == 0, done.output
    assert "No guarantee" in done.output
    assert {path.name for path in out.iterdir()} == {
        CALIBRATION_FILE, PAIRS_FILE, CURVE_FILE, CURVE_TABLE, RISK_PLOT, ACCURACY_PLOT, REPORT_FILE
    }  # fmt: skip
    found = load_calibration(EngineSettings(model=str(model)), TokenBuilder.load(model))
    assert found == Calibration.load(out / CALIBRATION_FILE)
    assert [source.name for source in found.series] == ["simulated, seed 0", "XYZ (bars.csv)"]


def test_a_source_that_cannot_be_read_ends_the_command_with_one_line(tmp_path: Path) -> None:
    arguments = ["calibrate", str(tmp_path / "nowhere.csv"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 1
    assert "nowhere.csv" in done.output
    assert not (tmp_path / "out").exists()
