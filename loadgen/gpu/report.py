"""A run of ``loadgen.gpu`` as a table, with the paper's figures beside it, and as one JSON document."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from loadgen.gpu.results import Spread
from loadgen.gpu.run import GpuRun, Settings
from loadgen.gpu.steps import COMMIT_TOKENS

WIDTH = 120
"""Columns where the output is no terminal."""

PACKAGES = ("stream-engine", "torch", "transformers", "bitsandbytes", "numpy")

PAPER: dict[str, float] = {
    "decode": 39.12,
    "prefill_ms_per_token": 0.843,
    "cold": 53.1,
    "fall_through": 53.0,
    "restore": 14.47,
    "scan": 0.664,
    "fast_path": 1.01,
    "energy_j": 63.8,
    "idle_w": 117.6,
    "loop_w": 500.1,
    "wasted_w": 191.0,
}
"""Table 1 and section 6: one H100, a 70B-class model at 4 bits. Milliseconds, joules, watts; scan and restore are
derived there, and first tokens come from the end of a whole request."""

NOTES = """\
p50 and p90 of the repeats, from an idle device to an idle device, the reduction of the logits included. Ours are
steps inside one process: the paper's cold, fall-through and fast path are first tokens of whole requests. In this
engine's prompt a question stands before the header: one that shares no beginning with a resident branch is cold.
Float noise: the largest difference of a gap, in logits, between ways to compute the same tokens. A gate needs a
margin of it."""


def document(settings: Settings, outcome: GpuRun) -> dict[str, Any]:
    """What the JSON file holds."""
    steps, energy = outcome.steps, outcome.energy
    weighed: dict[str, Any]
    if isinstance(energy, str):
        weighed = {"missing": energy}
    else:
        weighed = asdict(energy) | {"joules": energy.joules, "wasted_w": energy.wasted_w}
    return {
        "settings": asdict(settings),
        "machine": {"device": outcome.device, "cpus": os.cpu_count(), "platform": platform.platform()},
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "load": asdict(outcome.load),
        "steps_ms": asdict(steps),
        "derived": {
            "restore_ms": steps.restore_ms,
            "fused_extra_ms": steps.fused_extra_ms,
            "speedup": _speedup(outcome),
            "noise": steps.noise.largest,
        },
        "fast_path": asdict(outcome.fast_path),
        "energy": weighed,
        "paper": PAPER,
        "seconds": outcome.seconds,
    }


def encode(settings: Settings, outcome: GpuRun) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document(settings, outcome)), indent=2) + b"\n"


def show(settings: Settings, outcome: GpuRun, console: Console | None = None) -> None:
    """The table, and what its rows mean."""
    if console is None:
        console = Console(highlight=False)
        console = console if console.is_terminal else Console(highlight=False, width=WIDTH)
    sizes, load = settings.sizes, outcome.load
    found = ", ".join(f"{name} {_version(name) or 'absent'}" for name in PACKAGES[1:4])
    console.print(f"{outcome.device}; {found}")
    console.print(
        f"{settings.shape}, {settings.quantization}, random weights: {load.weights_gib:.2f} GiB, made in "
        f"{load.seconds:.1f} s; KV {load.kv_bytes_per_token} bytes a token; context {sizes.context}, "
        f"header {sizes.entry}, question {sizes.question} tokens; {settings.repeats} repeats"
    )
    console.print(_table(settings, outcome))
    if isinstance(outcome.energy, str):
        console.print(f"Energy: {outcome.energy}.")
    console.print(NOTES, soft_wrap=True)


def _table(settings: Settings, outcome: GpuRun) -> Table:
    table = Table(title="One session, nothing else on the device")
    for name in ("step", "p50", "p90", "paper (H100)", "unit"):
        table.add_column(name, justify="left" if name in ("step", "unit") else "right")
    steps, sizes = outcome.steps, settings.sizes
    whole = sizes.question + sizes.entry

    def row(name: str, spread: Spread, paper: str = "") -> None:
        table.add_row(name, _number(spread.p50), _number(spread.p90), _paper(paper), "ms")

    def figure(name: str, value: float, unit: str, paper: str = "") -> None:
        table.add_row(name, _number(value), "", _paper(paper), unit)

    row("decode, one token (HW-2)", steps.decode, "decode")
    row("of it the host's part, launching", steps.launch)
    for count, spread in steps.prefill.lengths.items():
        row(f"append of {count} tokens", spread)
    figure("prefill, slope of these (HW-1)", steps.prefill.ms_per_token, "ms/token", "prefill_ms_per_token")
    table.add_section()
    row(f"commit of {COMMIT_TOKENS} tokens", steps.commit)
    row(f"pre-position of {sizes.entry} tokens, alone (Eq. 6)", steps.preposition)
    row("both in one step", steps.fused)
    figure("pre-position on a commit: what it adds", steps.fused_extra_ms, "ms")
    table.add_section()
    row(f"cold, {whole} tokens (Eq. 2)", steps.cold, "cold")
    row(f"fall-through, {sizes.question} of {whole} tokens new (Eq. 5)", steps.fall_through_question)
    row("fall-through, delta 0 (Eq. 5)", steps.fall_through, "fall_through")
    figure("restore: delta 0 less a decode", steps.restore_ms, "ms", "restore")
    row(f"copy of the context, {sizes.context} tokens", steps.copy)
    figure("truncation", steps.truncate_us, "us")
    table.add_section()
    row("scan of one row of logits, on the device", steps.scan, "scan")
    fast = outcome.fast_path
    table.add_row(
        "fast path: board read and gate (Eq. 3)",
        _number(fast.p50_us / 1e3),
        _number(fast.p90_us / 1e3),
        _paper("fast_path"),
        "ms",
    )
    figure("cold / fast path (Eq. 4)", _speedup(outcome), "")
    figure(f"float noise of a gap, {steps.noise.draws} entries", steps.noise.largest, "logits")
    table.add_section()
    energy = outcome.energy
    if isinstance(energy, str):
        table.add_row("energy of a pre-position (HW-6)", "-", "", _paper("energy_j"), "J")
    else:
        figure("device, idle", energy.idle_w, "W", "idle_w")
        figure("device, pre-positions back to back", energy.loop_w, "W", "loop_w")
        figure("energy of a pre-position (HW-6)", energy.joules, "J", "energy_j")
        figure("wasted at rho = 1", energy.wasted_w, "W", "wasted_w")
    return table


def _speedup(outcome: GpuRun) -> float:
    """S of Eq. 4 on medians, with the read of the board as L_fast."""
    return outcome.steps.cold.p50 * 1e3 / outcome.fast_path.p50_us


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def _paper(name: str) -> str:
    return _number(PAPER[name]) if name else ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
