"""``stream-engine topics``: the topics of this project on a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from stream_engine.client.failure import Failure, wrong_setting
from stream_engine.client.options import Options
from stream_engine.config.rules import ConfigError

TIMEOUT_S = 10.0


@click.group()
def topics() -> None:
    """Make and list the topics that the service uses.

    Names, partitions, replicas and retention are settings of [kafka]. A topic that exists is never changed.

    \b
    Examples:
      stream-engine topics create --dry-run
      STREAM_ENGINE_KAFKA_REPLICATION_FACTOR=3 stream-engine topics create
      stream-engine topics list
    """


@topics.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be made.")
@click.pass_obj
def create(options: Options, dry_run: bool) -> None:
    """Make those that are absent."""
    settings = options.load().kafka
    with _told():
        from consumers.inspection import survey_topics
        from consumers.kafka.topics import ensure_topics

        states = survey_topics(settings, TIMEOUT_S)
        made = set() if dry_run else set(ensure_topics(settings, TIMEOUT_S))
        for state in states:
            name = state.plan.name
            what = (
                "exists" if state.exists else "would be made" if dry_run else "made" if name in made else "exists"
            )
            _line(what, name, state.describe(), state.differences())


@topics.command("list")
@click.pass_obj
def list_topics(options: Options) -> None:
    """Show each with its settings; status 1 where one is absent or not as it has to be."""
    settings = options.load().kafka
    with _told():
        from consumers.inspection import survey_topics

        states = survey_topics(settings, TIMEOUT_S)
    for state in states:
        shown = state.describe() if state.exists else state.plan.purpose
        _line("exists" if state.exists else "absent", state.plan.name, shown, state.differences())
    sound = all(state.exists and not state.differences() for state in states)
    click.get_current_context().exit(0 if sound else 1)


def _line(what: str, name: str, shown: str, differences: list[str]) -> None:
    wrong = f"  PROBLEM: {'; '.join(differences)}" if differences else ""
    click.echo(f"{what:13}  {name:34}  {shown}{wrong}")


@contextmanager
def _told() -> Iterator[None]:
    """Failures of the broker in one line. The Kafka client is imported in the block, so that help is quick."""
    from kafka.errors import KafkaError

    try:
        yield
    except ConfigError as error:
        raise wrong_setting(error) from error
    except (RuntimeError, KafkaError) as error:
        raise Failure(str(error)) from error
