"""``stream-engine health``: checks of one process, for containers."""

from __future__ import annotations

import time

import click

from stream_engine.cli.commands.serve import PARTS
from stream_engine.client.failure import Failure
from stream_engine.client.options import Options
from stream_engine.util.pulse import PulseWatch


@click.group()
def health() -> None:
    """Say whether one process of the service does its work: for health checks of containers.

    The API's own is GET /health/ready.
    """


@health.command(short_help="Whether the parts that run here are alive.")
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.pass_obj
def live(options: Options, parts: tuple[str, ...]) -> None:
    """Whether the loops of the PARTS turn that run on this machine: engine, consumer, api; all three by default.

    Status 0 when each gave a sign of life within `life.hung_after_s`, else 1 and which did not: a process that
    is stopped, waits for ever or spins gives none. What another start cannot help, a broker that is away say, is
    no matter here: for liveness probes.
    """
    life = options.load().life
    watches = [PulseWatch(life.folder, part, life.hung_after_s, life.start_s) for part in parts or PARTS]
    found = [ailment for watch in watches for ailment in watch.ailments()]
    if found:
        raise Failure("; ".join(found))
    click.echo(f"alive: {', '.join(parts or PARTS)}")


@health.command(short_help="The consumer of this machine.")
@click.pass_obj
def consumer(options: Options) -> None:
    """Whether the consumer's loop turns, the engine has welcomed it, and Kafka answers it.

    Status 0 when all of that holds, else 1 and what does not.
    """
    from consumers.health import ailments, stopped_partitions

    file = options.load().kafka.health_file
    found = ailments(file, time.time_ns() // 1_000_000)
    if found:
        raise Failure("; ".join(found))
    click.echo("\n".join(["the consumer is well", *stopped_partitions(file)]))
