"""``stream-engine query``: one question over HTTP, the answer with its evidence."""

from __future__ import annotations

import json
from typing import Any

import click

from stream_engine.client.options import Options, url_option
from stream_engine.client.shown import shown


class OffsetOption(click.ParamType[dict[str, int]]):
    """``PARTITION:OFFSET``."""

    name = "P:O"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> dict[str, int]:
        partition, _, offset = str(value).partition(":")
        if not (partition.isdecimal() and offset.isdecimal()):
            self.fail(f"{value!r}: PARTITION:OFFSET, such as 2:1041", param, context)
        return {"partition": int(partition), "offset": int(offset)}


@click.command()
@click.argument("session")
@click.argument("question")
@click.option(
    "--path",
    type=click.Choice(["auto", "fast", "full"]),
    default="auto",
    show_default=True,
    help="fast: from the ready distribution or not at all; full: run the model on the resident state.",
)
@click.option("--max-age-ms", type=click.IntRange(0), help="Refuse data whose newest record is older.")
@click.option("--min-version", type=click.IntRange(0), help="Refuse a session version below this one.")
@click.option("--min-offset", type=OffsetOption(), help="Only once this offset of this partition is applied: P:O.")
@click.option("--wait-ms", type=click.IntRange(0), default=0, help="How long to wait for these bounds.")
@click.option("--json", "as_json", is_flag=True, help="The answer as the API gives it, on one line.")
@url_option
@click.pass_obj
def query(
    options: Options,
    session: str,
    question: str,
    path: str,
    max_age_ms: int | None,
    min_version: int | None,
    min_offset: dict[str, int] | None,
    wait_ms: int,
    as_json: bool,
    url: str | None,
) -> None:
    """Ask SESSION (a symbol) a QUESTION.

    \b
    Examples:
      stream-engine query AAPL "What is the trend?"
      stream-engine query BTC/USD "Is it going up or down?" --path full
      stream-engine query AAPL "Trend?" --min-offset 0:1041 --wait-ms 2000
      stream-engine query AAPL "Trend?" --json | jq .answer

    A question that the model does not answer is refused with a list of those that it does.
    """
    from stream_engine.client.http import open_client, request, session_path

    bounds = {"max_age_ms": max_age_ms, "min_version": min_version, "min_offset": min_offset}
    body = {
        "question": question,
        "path": path,
        "wait_ms": wait_ms,
        **{name: value for name, value in bounds.items() if value is not None},
    }
    with open_client(options, url, timeout_s=15 + wait_ms / 1000) as client:
        answer = request(client, "POST", f"{session_path(session)}/query", json=body)
    click.echo(json.dumps(answer) if as_json else told(answer))


def told(answer: dict[str, Any]) -> str:
    gate = {True: ", gate fired", False: ", gate did not fire", None: ""}[answer["gate"]]
    threshold = "" if answer["tau"] is None else f" (tau {answer['tau']:g})"
    source, age = "pushed data", "age unknown (the record's time stamp is missing, or ahead of the clock)"
    if answer["age_ms"] is not None:
        age = f"record {answer['age_ms'] / 1000:.1f} s old"
    if answer["topic"] is not None:
        source = f"{answer['topic']}/{answer['partition']} offset {answer['offset']}"
    lines = [
        f"{answer['session']}: {answer['answer']}   ({answer['class']} of the last {answer['window_bars']} bars)",
        f"  path     {answer['path']}{gate}; {answer['reused_tokens']} of {answer['entry_tokens']} tokens reused",
        f"  gap      {answer['gap']:.2f}{threshold}, mass on the answer words {answer['fast_set_mass']:.3f}",
        f"  data     {source}, version {answer['session_version']}, bar {answer['event_time'] or '-'}, {age}",
        f"  session  {answer['state']}, {answer['bars']} of {answer['window_bars']} bars; model {answer['model']}",
        f"  latency  {answer['latency_us']} us in the service",
    ]
    return "\n".join(map(shown, lines))
