"""Probing a model before it serves: what it finds, and what it says in one sentence."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_engine.calibrate.probe import Clean, Fired, Probe, clean_windows, probe
from stream_engine.cli.commands.probe_model import table
from stream_engine.cli.main import cli
from stream_engine.config.engine import EngineSettings
from stream_engine.data.series import Series
from stream_engine.data.truth import truths
from stream_engine.model.profile import EMBEDDED, Profile

CLEAN = tuple(Clean(word, word, 5.0, True) for word in ("up", "up", "down", "down", "flat", "flat"))
PROFILE = Profile.load(EMBEDDED)
GATE = Fired(100, 80, 76, 79)
FOUND = Probe(
    model="m",
    tau=2.0,
    gate=GATE,
    in_set=90,
    over_tau={2.0: GATE},
    by_series={"simulated": GATE},
    gaps=(0.1, 1.0, 2.0, 3.0, 4.0),
    clean=CLEAN,
    prefill_ms=0.5,
    question_ms=9.0,
    decode_ms=7.0,
)


def test_clean_windows_are_what_they_are_called() -> None:
    profile = PROFILE
    found = clean_windows(profile, 3)
    right = truths([profile.generic_class], [series.bars[-profile.window_bars :] for _, series in found])
    assert [word["trend"] for word in right] == [direction for direction, _ in found]


def test_the_embedded_model_fires_and_tells_directions() -> None:
    told: list[tuple[int, int]] = []
    settings = EngineSettings(threads=1)
    found = probe(settings, 10, 1, lambda done, total: told.append((done, total)))
    assert found.gate.windows == found.in_set == 10
    assert 0 < found.gate.right <= found.gate.fired <= 10
    assert found.over_tau[0.0].fired == 10
    assert found.over_tau[4.0].fired <= found.gate.fired
    assert found.by_series == {"simulated": found.gate}
    assert found.tells_directions
    assert found.gaps == tuple(sorted(found.gaps))
    assert told[-1] == (22, 22)
    again = probe(settings, 10, 1, lambda done, total: None)
    untimed = {"prefill_ms": 0.0, "question_ms": 0.0, "decode_ms": 0.0}
    assert replace(again, **untimed) == replace(found, **untimed)


def test_recorded_series_are_counted_one_by_one() -> None:
    bars = [window.bars for _, window in clean_windows(PROFILE, 0)]
    series = [Series("A", "A", bars[0]), Series("B", "B", bars[-1])]
    found = probe(EngineSettings(threads=1), 1, 0, lambda done, total: None, series)
    assert {name: judged.windows for name, judged in found.by_series.items()} == {"A": 1, "B": 1}
    assert "A                     1 windows" in table(found)


def test_a_general_model_is_probed_by_the_same_command(tiny_chat: Path) -> None:
    ran = CliRunner().invoke(cli, ["probe-model", str(tiny_chat), "--windows", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
    assert report["gate"]["windows"] == 2
    assert report["model"] == tiny_chat.name
    assert report["verdict"]


def test_a_model_that_cannot_be_had_is_a_wrong_setting() -> None:
    ran = CliRunner().invoke(cli, ["probe-model", "nowhere"])
    assert ran.exit_code == 2
    assert "engine.model = 'nowhere'" in ran.output


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, r"The gate fires on 80\.0% of windows \[.*\], and it is right in 95\.0% of those\.$"),
        ({"gate": Fired(100, 0, 0, 0)}, r"^The gate will never fire: it did on none of 100 windows"),
        ({"gate": Fired(100, 5, 5, 5)}, r"^The gate will hardly ever fire: on 5\.0% of windows"),
        (
            {"clean": tuple(replace(window, said="up") for window in CLEAN)},
            r"right in 95\.0% of those, but clean rises, falls and sideways windows do not get three",
        ),
    ],
)
def test_the_verdict_is_plain(changes: dict[str, object], sentence: str) -> None:
    found = replace(FOUND, **changes)  # type: ignore[arg-type]
    assert found.verdict() == table(found).splitlines()[-1]
    assert re.search(sentence, found.verdict())


def test_every_figure_is_under_its_own_name() -> None:
    by_series = {"A": Fired(40, 30, 27, 29), "B": Fired(60, 15, 12, 14)}
    clean = (Clean("up", "up", 5.25, True), Clean("down", "flat", 1.5, False))
    over = {0.5: Fired(100, 95, 76, 90), 4.0: Fired(100, 0, 0, 0)}
    lines = table(replace(FOUND, by_series=by_series, over_tau=over, clean=clean)).splitlines()
    found = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines[:-1] if "  " in line.strip())
    assert found["first choice a word"].startswith("90/100 = 0.900 [")
    assert found["right of those"].startswith("76/80 = 0.950 [")
    assert found["same as full path"].startswith("79/80 = 0.988 [")
    assert found["gap, quantiles"] == "5% 0.10  25% 1.00  50% 2.00  75% 3.00  95% 4.00"
    assert found["at tau 0.5"] == "fires 0.950, right 0.800"
    assert "at tau 4" not in found, "nothing fired there"
    assert found["A"] == "40 windows, fires 0.750, right 0.900"
    assert found["B"] == "60 windows, fires 0.250, right 0.800"
    assert (found["clean up"], found["clean down"]) == ("'up' 5.25", "'flat' 1.50 (gate shut)")
    assert found["prefill, decode"] == "0.50 ms a token of many, 7.0 ms one token"
    assert found["question"] == "9.0 ms to its first token, one of each class in a step"
    assert any(line.startswith("gate fires, tau 2     80/100 = 0.800 [") for line in lines)


def test_a_direction_needs_one_word_of_its_own() -> None:
    mixed = (Clean("up", "up", 1.0, True), Clean("up", "flat", 1.0, True), Clean("down", "down", 1.0, True))
    two = (Clean("up", "up", 1.0, True), Clean("down", "down", 1.0, True), Clean("flat", "up", 1.0, True))
    for clean, tells in ((CLEAN, True), (mixed, False), (two, False)):
        assert replace(FOUND, clean=clean).tells_directions is tells
