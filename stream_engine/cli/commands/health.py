"""``stream-engine health``: checks of one process, for containers."""

from __future__ import annotations

import time

import click

from stream_engine.client.failure import Failure
from stream_engine.client.options import Options


@click.group()
def health() -> None:
    """Say whether one process of the service does its work: for health checks of containers.

    The API's own is GET /health/ready.
    """


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
