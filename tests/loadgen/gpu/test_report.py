"""The table and the document of ``loadgen.gpu``, from figures that no run would mix up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from loadgen.gpu.fast_path import ReadTimes
from loadgen.gpu.preposition_energy import PrepositionEnergy
from loadgen.gpu.report import WIDTH, encode, show
from loadgen.gpu.results import Noise, Prefill, Spread, StepTimes
from loadgen.gpu.run import GpuRun, LoadTimes, Settings
from loadgen.gpu.steps import Sizes


def spread(p50: float) -> Spread:
    return Spread(p50, p50 + 0.5, 30)


STEPS = StepTimes(
    decode=spread(2),
    launch=spread(1),
    prefill=Prefill({16: spread(14), 1024: spread(15)}, 0.75, 9.0),
    commit=spread(4),
    preposition=spread(5),
    fused=spread(7),
    cold=spread(50),
    fall_through=spread(8),
    fall_through_question=spread(10),
    scan=spread(11),
    copy=spread(12),
    truncate_us=3.25,
    noise=Noise(12, 0.25, 0.125, 0.0625, 0),
)
SETTINGS = Settings(
    shape="llama-70b",
    quantization="nf4",
    device="cuda",
    sizes=Sizes(2048, 16, 20),
    repeats=30,
    energy_seconds=10.0,
)
OUTCOME = GpuRun(
    device="H200",
    load=LoadTimes(60.0, 2.0, 36.8, 40.0, 4096),
    steps=STEPS,
    fast_path=ReadTimes(5.0, 6.0, 20_000),
    energy=PrepositionEnergy("NVML", 100.0, 340.0, 80, 0.125),
    seconds=123.0,
)


def rows(outcome: GpuRun) -> dict[str, tuple[str, ...]]:
    """Of the printed table: p50, p90, paper and unit by name."""
    console = Console(width=WIDTH, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    show(SETTINGS, outcome, console)
    console.file.close()
    lines = [line for line in console.export_text().splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    return {name: tuple(values) for name, *values in cells}


def document(outcome: GpuRun) -> Any:
    return json.loads(encode(SETTINGS, outcome))


def test_every_row_shows_its_own_figure_beside_the_papers() -> None:
    assert rows(OUTCOME) == {
        "decode, one token (HW-2)": ("2.00", "2.50", "39.12", "ms"),
        "of it the host's part, launching": ("1.00", "1.50", "", "ms"),
        "append of 16 tokens": ("14.00", "14.50", "", "ms"),
        "append of 1024 tokens": ("15.00", "15.50", "", "ms"),
        "prefill, slope of these (HW-1)": ("0.7500", "", "0.8430", "ms/token"),
        "commit of 9 tokens": ("4.00", "4.50", "", "ms"),
        "pre-position of 16 tokens, alone (Eq. 6)": ("5.00", "5.50", "", "ms"),
        "both in one step": ("7.00", "7.50", "", "ms"),
        "pre-position on a commit: what it adds": ("3.00", "", "", "ms"),
        "cold, 36 tokens (Eq. 2)": ("50.00", "50.50", "53.10", "ms"),
        "fall-through, 20 of 36 tokens new (Eq. 5)": ("10.00", "10.50", "", "ms"),
        "fall-through, delta 0 (Eq. 5)": ("8.00", "8.50", "53.00", "ms"),
        "restore: delta 0 less a decode": ("6.00", "", "14.47", "ms"),
        "copy of the context, 2048 tokens": ("12.00", "12.50", "", "ms"),
        "truncation": ("3.25", "", "", "us"),
        "scan of one row of logits, on the device": ("11.00", "11.50", "0.6640", "ms"),
        "fast path: board read and gate (Eq. 3)": ("0.0050", "0.0060", "1.01", "ms"),
        "cold / fast path (Eq. 4)": ("10,000", "", "", ""),  # 50 ms / 5 us
        "float noise of a gap, 12 entries": ("0.2500", "", "", "logits"),
        "device, idle": ("100.00", "", "117.60", "W"),
        "device, pre-positions back to back": ("340.00", "", "500.10", "W"),
        "energy of a pre-position (HW-6)": ("30.00", "", "63.80", "J"),
        "wasted at rho = 1": ("120.00", "", "191.00", "W"),
    }


def test_the_document_says_the_same() -> None:
    found = document(OUTCOME)
    assert found["derived"] == {
        "restore_ms": pytest.approx(6),
        "fused_extra_ms": pytest.approx(3),
        "speedup": pytest.approx(10_000),
        "noise": pytest.approx(0.25),
    }
    energy = found["energy"]
    assert (energy["idle_w"], energy["loop_w"], energy["prepositions"]) == (100, 340, 80)
    assert (energy["joules"], energy["wasted_w"]) == (30, 120)
    assert (found["machine"]["device"], found["load"]["weights_gib"], found["seconds"]) == ("H200", 36.8, 123)
    assert found["fast_path"] == {"p50_us": 5, "p90_us": 6, "reads": 20_000}


def test_the_largest_noise_counts_whichever_way_it_came() -> None:
    for name in ("fused", "chunks", "reused"):
        noise = replace(Noise(12, 0.25, 0.125, 0.0625, 0), **{name: 0.5})
        assert document(replace(OUTCOME, steps=replace(STEPS, noise=noise)))["derived"]["noise"] == 0.5


def test_energy_that_could_not_be_measured_is_no_figure() -> None:
    without = replace(OUTCOME, energy="unavailable: no meter")
    assert rows(without)["energy of a pre-position (HW-6)"] == ("-", "", "63.80", "J")
    assert not {"device, idle", "wasted at rho = 1"} & rows(without).keys()
    assert document(without)["energy"] == {"missing": "unavailable: no meter"}
