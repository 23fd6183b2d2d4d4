"""``stream-engine doctor``: what is wrong here, and what to do about it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import click

from stream_engine.client.options import Options

BROKER_TIMEOUT_S = 3.0
MODEL_TIMEOUT_S = 30.0
_MARKS = {"ok": ("ok     ", "green"), "warning": ("warning", "yellow"), "problem": ("PROBLEM", "red")}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A JSON list of findings instead of lines.")
@click.pass_obj
def doctor(options: Options, as_json: bool) -> None:
    """Look at everything that the service needs, and say what to do where it is not right.

    Python and packages, torch, the model and its calibration, the ready board, sockets and ports, the broker, its
    topics, the consumer group and the clock. It changes nothing, and works whether or not the service runs.
    Status 1 where there is a problem; a warning is none.

    \b
    Examples:
      stream-engine doctor
      KAFKA_BOOTSTRAP_SERVERS=broker:9092 stream-engine doctor --json
    """
    config = options.load()
    from consumers.inspection import inspect_kafka
    from stream_engine.cli.doctor import (
        ModelCheck,
        check_api,
        check_board,
        check_calibration,
        check_memory,
        check_python,
        check_transport,
    )
    from stream_engine.client.address import api_url
    from stream_engine.util.findings import Level

    model = ModelCheck(config.engine)
    findings = [
        *check_python(),
        *check_board(config.board),
        *check_transport(config.transport),
        *check_api(api_url(config.api)),
        *inspect_kafka(config.kafka, BROKER_TIMEOUT_S),
        *model.findings(MODEL_TIMEOUT_S),
    ]
    if any(finding.subject == "model" and finding.level is Level.OK for finding in findings):
        findings += [*check_calibration(config.engine), *check_memory(config.engine)]
    counted = Counter(finding.level.value for finding in findings)
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            mark, colour = _MARKS[finding.level.value]
            click.echo(f"{click.style(mark, fg=colour)}  {finding.subject:{width}}  {finding.message}")
            if finding.remedy:
                click.echo(f"{'':9}{'':{width}}  -> {finding.remedy}")
        click.echo(f"{len(findings)} checks: {counted['problem']} problems, {counted['warning']} warnings")
    click.get_current_context().exit(1 if counted["problem"] else 0)
