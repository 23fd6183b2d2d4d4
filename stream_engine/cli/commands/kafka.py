"""``stream-engine kafka``: a real Kafka broker on this machine."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import click

from stream_engine.client.failure import Failure

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of its records, configuration and logs. Default: ~/.local/share/stream-engine/kafka.",
)


@click.group()
def kafka() -> None:
    """Start and stop a real Apache Kafka on this machine.

    For laptops and trials: one node, on 127.0.0.1. The first start fetches Kafka (60 MB); topics and
    offsets stay in the data folder. Whoever has a broker sets KAFKA_BOOTSTRAP_SERVERS and needs none of this.

    \b
    Examples:
      stream-engine kafka start
      stream-engine kafka start --data /srv/kafka --port 19092
      stream-engine kafka status
      stream-engine kafka stop
    """


@kafka.command()
@data_option
@click.option("--port", type=click.IntRange(1, 65535), default=9092, show_default=True)
def start(data: Path | None, port: int) -> None:
    """Start it in the background; returns when it answers."""
    local = _local()
    try:
        broker = local.start(data or local.default_data_dir(), port)
    except local.LocalKafkaError as error:
        raise Failure(str(error)) from error
    state = "runs already" if broker.already_running else "ready"
    where = f"{broker.bootstrap}, pid {broker.pid}, data {broker.data_dir}"
    click.echo(f"Kafka {local.KAFKA_VERSION} {state}: {where}")
    if port != 9092:
        click.echo(f"  export KAFKA_BOOTSTRAP_SERVERS={broker.bootstrap}")


@kafka.command()
@data_option
def stop(data: Path | None) -> None:
    """Stop it cleanly; its data stays."""
    local = _local()
    folder = data or local.default_data_dir()
    try:
        stopped = local.stop(folder)
    except local.LocalKafkaError as error:
        raise Failure(str(error)) from error
    click.echo("stopped" if stopped else f"no broker ran in {folder}")


@kafka.command()
@data_option
def status(data: Path | None) -> None:
    """Say whether it runs; status 0 when it answers, else 1."""
    local = _local()
    try:
        found = local.status(data or local.default_data_dir())
    except local.LocalKafkaError as error:
        raise Failure(str(error)) from error
    where = "" if found.bootstrap is None else f": {found.bootstrap}, pid {found.pid}"
    click.echo(f"{found.state.value}{where}, data {found.data_dir}")
    click.get_current_context().exit(0 if found.state is local.BrokerState.READY else 1)


def _local() -> ModuleType:
    try:
        from stream_engine import localkafka
    except ImportError as error:
        raise Failure(f"{error.name} is missing: pip install 'stream-engine[broker]'") from error
    return localkafka
