"""``stream-engine simulate``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_engine.cli.main import cli

QUICK = ("--updates", "400", "--repeats", "4")
SHEETS = {
    "fig4a", "fig4a-measured", "fig4b", "fig5", "fig6a", "fig6a-measured", "fig6b", "fig6-simulated", "runs"
}  # fmt: skip
PLOTS = {f"{name}.{kind}" for name in ("fig4a", "fig4b", "fig5", "fig6a", "fig6b") for kind in ("png", "svg")}


def simulate(out: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", "--out", str(out), *options])


def test_report_figures_and_their_data(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    done = simulate(out, *QUICK)
    assert done.exit_code == 0, done.output
    assert {path.name for path in out.iterdir()} == {"report.txt", *PLOTS, *(f"{name}.csv" for name in SHEETS)}
    text = (out / "report.txt").read_text()
    for number in ("54.294 ms", "0.664 ms", "81.77", "53.590 ms", "68.764 ms", "15.174 ms", "3.559 ms"):
        assert text.count(number) == 2  # here, and with the paper's constants
        assert number in done.output
    with (out / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["table"] for row in rows] == ["sweep"] * 5 + ["shapes"] * 5 + ["crowds"] * 5
    for row in rows:
        parts = int(row["skipped"]) + int(row["overtaken"]) + int(row["completed"])
        assert parts == int(row["updates"])
        assert int(row["fast"]) + int(row["fall"]) + int(row["cold"]) == int(row["queries"])


def test_measured_costs_and_a_recorded_trace(tmp_path: Path) -> None:
    costs = {
        "prefill_ms_per_token": 0.5, "decode_ms": 7.0, "scan_ms": 0.25, "restore_ms": 0.125, "entry_tokens": 12,
        "gate_fires": 0.98,
    }  # fmt: skip
    measured, trace = tmp_path / "bench.json", tmp_path / "trace.csv"
    measured.write_text(json.dumps({"costs": costs, "machine": "two cores"}))
    trace.write_text("at,session,event\n0,A,update\n1,A,query\n5,A,update\n9,A,query\n")
    done = simulate(tmp_path, *QUICK, "--measured", str(measured), "--trace", str(trace), "--rho", "2")
    assert done.exit_code == 0, done.output
    assert "1 queries before a session's first update or after its last left out" in done.stderr
    text = (tmp_path / "report.txt").read_text()
    assert "Closed form: two cores" in text
    assert "13.000 ms" in text  # cold: 12 x 0.5 + 7
    assert "54.294 ms" in text  # the paper's, beside it
    with (tmp_path / "runs.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert (last["table"], last["hits"], last["fast"], last["hit_rate"]) == ("recorded", "1", "1", "1.0")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--rho", "0,1"), "each must be positive"),
        (("--rho", "1,200000"), "--rho: from 1e-06 to 125000, which with --updates 400 are 50000000 queries"),
        (("--rho", "1e-300"), "--rho: from 1e-06"),
        (("--updates", "10", "--repeats", "20"), "--updates 10 leaves some of --repeats 20 without one"),
        (("--delta", "19"), "--delta 19 is more than the entry's 18 tokens"),
        (("--region-tokens", "40", "--update-tokens", "21"), "a region of 40 tokens keeps no half"),
        (("--updates-per-second", "1000000"), "--updates-per-second 1e+06 leaves no time for a pre-position"),
        (("--measured", "wrong.json"), "wrong.json: "),
        (("--trace", "wrong.json"), "wrong.json, line 1: no column at"),
    ],
)
def test_what_it_refuses(
    options: tuple[str, ...], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.json").write_text('{"costs": {}}')
    done = simulate(tmp_path / "out", *QUICK, *options)
    assert done.exit_code == 2
    assert reason in done.output


def test_a_folder_that_takes_no_file_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "fig5.csv").mkdir()
    done = simulate(tmp_path, *QUICK)
    assert done.exit_code == 1
    assert "not all of it could be written: " in done.stderr
    assert "fig5.csv" in done.stderr


def test_without_matplotlib_the_data_is_there_and_the_reason_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "loadgen.simulate.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = simulate(tmp_path, *QUICK)
    assert done.exit_code == 1
    assert "matplotlib is missing: pip install 'stream-engine[calibrate]'" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"report.txt", *(f"{name}.csv" for name in SHEETS)}
