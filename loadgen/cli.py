"""The command line: ``loadgen``."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import click

from loadgen.rhos import Rhos
from stream_engine.client.failure import Failure
from stream_engine.client.options import Options, url_option
from stream_engine.client.signals import exit_on_terminate


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="STREAM_ENGINE_CONFIG",
    help="The service's settings in TOML; also $STREAM_ENGINE_CONFIG.",
)
@click.pass_context
def cli(context: click.Context, config_file: Path | None) -> None:
    """Put load on a running service and measure it as its clients do."""
    context.obj = Options(config_file, "warning")


@cli.command()
@click.option(
    "--rho",
    "rhos",
    type=Rhos(),
    default="0.1,1,10",
    show_default=True,
    help="Queries per update of a session, one phase for each.",
)
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Length of a phase.")
@click.option(
    "--updates-per-second",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Mean rate of bars of each session.",
)
@click.option("--sessions", type=click.IntRange(1, 1000), default=8, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Draws arrivals and bars.")
@click.option("--question", "questions", multiple=True, help="Default: the served model's, of its generic class.")
@click.option("--name", help="Sessions are called NAME-00, ...; default: LOAD and the time.")
@url_option
@click.option("--bootstrap", help="Kafka as host:port[,host:port]. Default: [kafka] bootstrap_servers.")
@click.option("--topic", help="Default: [kafka] bars_topic of the settings.")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write all of it here.")
@click.pass_obj
def run(
    options: Options,
    rhos: tuple[float, ...],
    seconds: float,
    updates_per_second: float,
    sessions: int,
    seed: int,
    questions: tuple[str, ...],
    name: str | None,
    url: str | None,
    bootstrap: str | None,
    topic: str | None,
    file: Path | None,
) -> None:
    """Poisson updates on Kafka, Poisson queries over HTTP.

    Measures, for each rho, the latency of each path from the intended send time, and the share of
    pre-positions that a query read, against its closed form. The service must run (stream-engine serve), with the
    model that the settings given here name, and should have no other traffic. A run begins with a region of
    simulated bars in each of its own sessions, and deletes them at its end.

    \b
    Examples:
      loadgen run --rho 0.1,1,10 --seconds 30
      loadgen run --rho 1 --seconds 120 --sessions 16 --updates-per-second 2 --json run.json
    """
    exit_on_terminate()
    from loadgen import report
    from loadgen.runner import Load
    from loadgen.runner import run as measure
    from loadgen.served import served_profile
    from stream_engine.client.http import open_client, request

    if file is not None and not file.parent.is_dir():
        raise Failure(f"--json {file}: no folder {file.parent}", 2)
    config = options.load()
    kafka = dataclasses.replace(
        config.kafka,
        bootstrap_servers=bootstrap or config.kafka.bootstrap_servers,
        bars_topic=topic or config.kafka.bars_topic,
    )
    with open_client(options, url) as client:
        served = request(client, "GET", "/health/ready")["model"]
        base = str(client.base_url).rstrip("/")
    profile = served_profile(served, config.engine)
    if not (questions or profile.questions.get(profile.generic_class.name)):
        raise Failure(f"the profile of {served!r} lists no wordings: give some with --question", 2)
    load = Load(
        url=base,
        kafka=kafka,
        rhos=rhos,
        seconds=seconds,
        updates_per_second=updates_per_second,
        sessions=sessions,
        seed=seed,
        questions=questions or profile.questions[profile.generic_class.name],
        history_bars=profile.region_bars,
        name=name or f"LOAD{time.time():.0f}",
    )
    try:
        outcome = measure(load, lambda text: click.echo(text, err=True))
    except RuntimeError as error:  # no broker, no topic, bars not confirmed
        raise Failure(str(error)) from error
    report.show(load, outcome)
    if file is not None:
        file.write_bytes(report.encode(load, outcome))
        click.echo(f"written: {file}", err=True)


def main() -> None:
    """Entry point. Exit status: 0 done, 1 failed, 2 wrong usage or setting."""
    cli()


if __name__ == "__main__":
    main()
