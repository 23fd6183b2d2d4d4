"""``stream-engine produce``: bars of a file onto the topic."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from stream_engine.client.failure import Failure, wrong_setting
from stream_engine.client.options import Options
from stream_engine.client.shown import shown
from stream_engine.client.signals import exit_on_terminate
from stream_engine.config.rules import ConfigError


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--sample", is_flag=True, help="Instead of FILE: daily bars of five equities, 2000 to 2013.")
@click.option(
    "--speed",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Bars a second over all symbols; 0: as fast as the broker takes them.",
)
@click.option("--symbol", help="Symbol of bars that name none.")
@click.option(
    "--dates",
    type=click.Choice(["day-first", "month-first"]),
    help="How to read 03/04/2025, where no date of the file tells.",
)
@click.option("--limit", type=click.IntRange(1), help="Only the last N bars.")
@click.option("--topic", help="Default: [kafka] bars_topic of the settings.")
@click.pass_obj
def produce(
    options: Options,
    file: Path | None,
    sample: bool,
    speed: float,
    symbol: str | None,
    dates: Literal["day-first", "month-first"] | None,
    limit: int | None,
    topic: str | None,
) -> None:
    """Publish the bars of FILE in event-time order.

    FILE is CSV with a header, JSON or JSON lines, plain or gzipped, with the usual names: open or o, high, low,
    close, volume; time, ts, date or datetime, or a date and a time; symbol or ticker. Times without an offset are
    taken as UTC. The topic is made where it is absent.

    \b
    Examples:
      stream-engine produce bars.csv --symbol AAPL --speed 20
      stream-engine produce ticks_1m.jsonl.gz --speed 0
      stream-engine produce --sample --limit 2000
    """
    if (file is None) is not sample:
        raise click.UsageError("give a FILE, or --sample")
    config = options.load()
    exit_on_terminate()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from consumers.files.reader import read_bars, sample_bars
    from consumers.files.times import FeedError
    from consumers.kafka.publish import publish, refusals
    from consumers.kafka.topics import ensure_topics

    def tell(sentence: str) -> None:
        click.echo(sentence, err=True)

    topic = topic or config.kafka.bars_topic
    try:
        bars = sample_bars() if file is None else read_bars(file, symbol, tell, dates)
        bars = bars[-limit:] if limit else bars
        ensure_topics(config.kafka, timeout_s=5.0)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as view:
            task = view.add_task(topic, total=len(bars))
            sent = publish(bars, config.kafka, topic, speed, lambda count: view.advance(task, count))
    except ConfigError as error:
        raise wrong_setting(error) from error
    except (FeedError, RuntimeError, OSError) as error:  # RuntimeError: no broker, no topic, not confirmed
        raise Failure(str(error)) from error
    symbols = sorted({name for name, _ in bars})
    named = ", ".join(map(shown, symbols[:8])) + (", ..." if len(symbols) > 8 else "")
    bad = refusals(bars, topic)
    if bad:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in bad.most_common())
        click.echo(
            f"{bad.total()} of {sent} bars cannot be used ({reasons}): the consumer puts each on "
            f"{topic}{config.kafka.dead_letter_suffix}, its headers reason and detail say why",
            err=True,
        )
    kept = f"{sent - bad.total()} bars of {len(symbols)} symbols ({named})"
    click.echo(f"{kept} on {topic} at {config.kafka.bootstrap_servers}")
