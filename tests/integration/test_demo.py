"""The demo in its short form, on the tests' broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from kafka import KafkaAdminClient

from consumers.files.times import FeedError
from stream_engine.cli.demo import scenario
from stream_engine.client.failure import Failure
from stream_engine.client.options import Options

PATIENCE_S = 300.0


def topics(bootstrap: str) -> set[str]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        return {topic for topic in admin.list_topics() if not topic.startswith("__")}
    finally:
        admin.close()


def test_the_demo_shows_everything_and_leaves_nothing(kafka: Any) -> None:
    before = topics(kafka.bootstrap)
    done = subprocess.run(
        [sys.executable, "-m", "stream_engine.cli", "demo", "--bars", "72", "--speed", "24"],
        env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    for instrument in scenario.INSTRUMENTS:
        assert re.search(rf"^{instrument} +open +high +low +close +volume$", shown, re.M)
        assert re.search(rf'^  {instrument} +"', shown, re.M)
    assert re.search(r"trend +\S+ -> (up|down|flat)", shown), "no standing answer changed"
    assert re.search(r'" -> \w+   (cold|fallthrough), gap [\d.]+, offset \d+:\d+, [\d.]+ ms', shown)
    assert f'"{scenario.OUTSIDE}" -> 422' in shown
    assert re.search(r"\d+ of \d+ questions asked with path auto were answered fast \([\d.]+%\)", shown)
    assert re.search(r"p50: fast [\d.]+ ms, full path [\d.]+ ms at the client", shown)
    assert re.search(r"\d+ completed, \d+ hits, \d+ wasted", shown)
    assert topics(kafka.bootstrap) <= before
    url = re.search(r"service ready: http://127\.0\.0\.1:(\d+)", shown)
    assert url is not None
    listening = subprocess.run(
        [sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {url[1]}), 1)"],
        capture_output=True,
    )
    assert listening.returncode != 0


def test_sample_data_that_is_missing_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise FeedError("the sample data is an optional extra: pip install 'stream-engine[demo]'")

    monkeypatch.setattr(scenario, "sample_bars", absent)
    with pytest.raises(Failure, match=r"stream-engine\[demo\]"):
        scenario.run(Options(None, "info"), 240, 16.0)
