"""``stream-engine watch``: the live view."""

from __future__ import annotations

import click

from stream_engine.client.options import Options, url_option


@click.command()
@click.option("--session", help="Only this session.")
@url_option
@click.option("--once", is_flag=True, help="Print the view once and end.")
@click.pass_obj
def watch(options: Options, session: str | None, url: str | None, once: bool) -> None:
    """Sessions, bars, answers and gate, live.

    The answer column is the generic header's top answer with its gap, by which the gate decides; the age is that
    of the newest bar. Below, the standing queries' answers as they change; with --once, the queries. Ctrl-C ends
    it.

    \b
    Examples:
      stream-engine watch
      stream-engine watch --session AAPL --url http://desk:8080
    """
    from stream_engine.cli.live_view import run

    run(options, session, url, once)
