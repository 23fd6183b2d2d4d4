"""The command line: ``stream-engine``. Commands import what they need when they run, so help answers at once."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click

from stream_engine.cli.commands.calibrate import calibrate
from stream_engine.cli.commands.demo import demo
from stream_engine.cli.commands.doctor import doctor
from stream_engine.cli.commands.health import health
from stream_engine.cli.commands.kafka import kafka
from stream_engine.cli.commands.models import models
from stream_engine.cli.commands.probe_model import probe_model
from stream_engine.cli.commands.produce import produce
from stream_engine.cli.commands.query import query
from stream_engine.cli.commands.serve import serve
from stream_engine.cli.commands.simulate import simulate
from stream_engine.cli.commands.topics import topics
from stream_engine.cli.commands.train import train
from stream_engine.cli.commands.watch import watch
from stream_engine.client.options import LOG_LEVELS, Options
from stream_engine.client.shown import keep_writing

INTERRUPTED = 130
"""Exit status after Ctrl-C, as a shell gives it."""

HELP = """
Ask market data questions while it streams in on Apache Kafka.

Each symbol has a resident language-model session. A commit of new bars also computes the answer that the next
question is likely to need, so that most questions are answered without running the model.

\b
First steps, each in a terminal of its own:
  stream-engine demo                          all of it on real data, in two minutes
  stream-engine kafka start                   a broker on this machine, if you have none
  stream-engine serve                         engine, consumer and HTTP API
  stream-engine produce bars.csv --speed 20   publish 20 bars a second
  stream-engine query AAPL "What is the trend?"
  stream-engine watch                         sessions and answers, live

\b
Settings come from defaults, then --config FILE (TOML), then the environment:
  [kafka] group_id = "desk"     is the same as   STREAM_ENGINE_KAFKA_GROUP_ID=desk
  KAFKA_BOOTSTRAP_SERVERS=host:port   names your broker
"""


@click.group(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="stream-engine", message="%(prog)s %(version)s")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="STREAM_ENGINE_CONFIG",
    help="Settings in TOML; also $STREAM_ENGINE_CONFIG.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="What the processes of the service log, on stderr.",
)
@click.pass_context
def cli(context: click.Context, config_file: Path | None, log_level: str) -> None:
    context.obj = Options(config_file, log_level)


service = serve, produce, query, watch, demo, doctor, health, topics, kafka
for command in (*service, train, models, probe_model, calibrate, simulate):
    cli.add_command(command)


def main() -> None:
    """Entry point. Exit status: 0 done, 1 failed, 2 wrong usage or setting, 130 interrupted."""
    keep_writing()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or a file of few characters: the others are shown by their numbers, and nothing ends.
            stream.reconfigure(errors="backslashreplace")
    try:
        status = cli.main(prog_name="stream-engine", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`); Python would complain once more when it flushes.
        sys.stderr.close()
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
