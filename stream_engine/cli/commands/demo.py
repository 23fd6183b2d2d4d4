"""``stream-engine demo``: all of it on real data, in one command."""

from __future__ import annotations

import click

from stream_engine.client.options import Options
from stream_engine.client.signals import exit_on_terminate


@click.command()
@click.option(
    "--bars", type=click.IntRange(64), default=240, show_default=True, help="Daily bars of each instrument."
)
@click.option(
    "--speed", type=click.FloatRange(1), default=16.0, show_default=True, help="Bars a second, all instruments."
)
@click.pass_obj
def demo(options: Options, bars: int, speed: float) -> None:
    """Real daily bars through a real Kafka, answered.

    Starts a broker (or uses KAFKA_BOOTSTRAP_SERVERS) and the service, each on free ports and in folders of their
    own; registers standing queries; publishes daily bars of real equities; asks; compares the fast path
    with the full path, measured by the same client in the same run. Leaves nothing running.

    \b
    Examples:
      stream-engine demo
      stream-engine demo --bars 1000 --speed 40
      KAFKA_BOOTSTRAP_SERVERS=broker:9092 stream-engine demo
    """
    exit_on_terminate()
    from stream_engine.cli.demo import run

    run(options, bars, speed)
