"""``python -m loadgen.keys``: options, a table, and one JSON document."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from loadgen.keys.flat import FlatRow, MarketSizes, measure
from stream_engine.client.signals import exit_on_terminate


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--sessions", type=(click.IntRange(1), click.IntRange(1)), default=(50, 50_000), show_default=True)
@click.option("--queries", type=(click.IntRange(1), click.IntRange(1)), default=(10, 10_000), show_default=True)
@click.option("--waiting", type=click.IntRange(1), default=60_000, show_default=True, help="Records that wait.")
@click.option("--repeats", type=click.IntRange(1), default=50, show_default=True, help="Of each operation.")
@click.option("--kv-memory", default="256MB", show_default=True, help="engine.kv_memory of the engine.")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write all of it here.")
def main(
    sessions: tuple[int, int],
    queries: tuple[int, int],
    waiting: int,
    repeats: int,
    kv_memory: str,
    file: Path | None,
) -> None:
    """What one operation costs an engine among few keys and among many. The engine runs in this process, on the
    embedded model; no broker, no network.

    \b
    Example:
      python -m loadgen.keys --json keys.json
    """
    exit_on_terminate()
    started = time.monotonic()
    sizes = MarketSizes(*sessions, *queries, waiting, repeats)
    rows = measure(
        sizes, kv_memory, lambda text: click.echo(f"{time.monotonic() - started:6.1f} s  {text}", err=True)
    )
    machine = {"cpus": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()}
    console = Console(highlight=False)
    console.print(f"{machine['cpus']} CPUs, {machine['platform']}, Python {machine['python']}", soft_wrap=True)
    console.print(_table(rows))
    if file is not None:
        document = {
            "machine": machine,
            "sizes": asdict(sizes),
            "flat": [asdict(row) | {"ratio": row.ratio} for row in rows],
        }
        file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def _table(rows: tuple[FlatRow, ...]) -> Table:
    table = Table(title="One operation among few and among many live objects")
    for column in ("operation", "among", "ms", "looked at", "among", "ms", "looked at", "ratio"):
        table.add_column(column, justify="left" if column == "operation" else "right")
    for row in rows:
        few, many = (
            (f"{count:,}", f"{cost.ms:.3f}", str(cost.looked))
            for count, cost in zip(row.objects, (row.few, row.many), strict=True)
        )
        table.add_row(row.operation, *few, *many, f"{row.ratio:.2f}")
    return table
