"""A run as tables, and as one JSON document with everything needed to repeat and to judge it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from loadgen.results import PathTimes
from loadgen.runner import Load, LoadOutcome

WIDTH = 120
"""Columns where the output is no terminal."""

PACKAGES = ("stream-engine", "kafka-python", "httptools", "numpy")

NOTES = """\
Latency counts from the intended send time, so a stall shows in every query that was due meanwhile.
h: hits / (hits + wasted), of pre-positions, with its Wilson 95 % interval; beside it rho/(1+rho) (Eq. 8) of the
realised rho, answered queries / commits. g: of queries that read a valid ready distribution, those where the
gate fired. E[L]: Eq. 9 on the measured h, g and mean latencies; a path that no query took counts as when idle.
After a gate miss the first question on a version is cold, later ones fall through: that term is the mean of both.
Eq. 9 lets one query find each pre-position, but it serves all queries of its interval, so the measured mean is
lower."""


def document(load: Load, outcome: LoadOutcome) -> dict[str, Any]:
    """What the JSON file holds."""
    kafka = load.kafka
    settings = {name: getattr(load, name) for name in load.__dataclass_fields__ if name != "kafka"}
    return {
        "settings": settings | {"bootstrap_servers": kafka.bootstrap_servers, "topic": kafka.bars_topic},
        "model": outcome.model,
        "machine": {
            "cpus": os.cpu_count(),
            "platform": platform.platform(),
            "load_average": os.getloadavg(),
        },
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "baseline": {path: asdict(times) for path, times in outcome.baseline.items()},
        "phases": [asdict(phase) for phase in outcome.phases],
    }


def encode(load: Load, outcome: LoadOutcome) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document(load, outcome)), indent=2) + b"\n"


def show(load: Load, outcome: LoadOutcome, console: Console | None = None) -> None:
    """Both tables and what their columns mean."""
    if console is None:
        console = Console(highlight=False)
        console = console if console.is_terminal else Console(highlight=False, width=WIDTH)
    console.print(
        f"model {outcome.model}, {load.sessions} sessions, {load.updates_per_second:g} updates a second each, "
        f"{load.seconds:g} s a rho, seed {load.seed}, {os.cpu_count()} CPUs"
    )
    console.print(_shares(outcome))
    console.print(_latencies(outcome))
    console.print(NOTES, soft_wrap=True)
    for phase in outcome.phases:
        if phase.late is not None:
            console.print(
                f"rho {phase.rho:g}: this generator itself was late by {phase.late.p50:.2f} ms (p50), "
                f"{phase.late.p99:.2f} ms (p99): part of the client's latencies"
            )
        for error, count in phase.errors.items():
            console.print(f"rho {phase.rho:g}: {count} of {phase.queries} queries without an answer: {error}")
        if phase.commits > phase.updates:
            console.print(
                f"rho {phase.rho:g}: {phase.commits} commits of {phase.updates} updates: other data came in as "
                "well, and is in these figures"
            )


def _shares(outcome: LoadOutcome) -> Table:
    table = Table(title="Pre-positions")
    for name in (
        "rho", "realised", "commits", "queries", "h", "95 %", "rho/(1+rho)", "wasted", "g", "E[L] ms", "mean ms",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for phase in outcome.phases:
        interval = "-"
        if phase.hit_rate_low is not None:
            interval = f"{_share(phase.hit_rate_low)}..{_share(phase.hit_rate_high)}"
        table.add_row(
            f"{phase.rho:g}",
            _share(phase.rho_realised),
            str(phase.commits),
            str(phase.queries),
            _share(phase.hit_rate),
            interval,
            _share(phase.hit_rate_closed_form),
            _share(phase.wasted_rate),
            _share(phase.gate_fire_rate),
            _ms(phase.expected_ms),
            _ms(phase.mean_ms),
        )
    return table


def _latencies(outcome: LoadOutcome) -> Table:
    table = Table(title="Latency in ms, as the client sees it and as the service says")
    for name in ("rho", "path", "count", "p50", "p90", "p99", "service p50", "p90", "p99"):
        table.add_column(name, justify="left" if name == "path" else "right")
    groups: list[tuple[str, Mapping[str, PathTimes]]] = [("idle", outcome.baseline)]
    groups += [(f"{phase.rho:g}", phase.paths) for phase in outcome.phases]
    for group, paths in groups:
        for number, (path, times) in enumerate(paths.items()):
            client, server = times.client, times.server
            values = (client.p50, client.p90, client.p99, server.p50, server.p90, server.p99)
            table.add_row(group if number == 0 else "", path, str(times.count), *(_ms(value) for value in values))
        table.add_section()
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
