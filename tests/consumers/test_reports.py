"""What a consumer tells of itself, and when."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import msgspec
import pytest

from consumers.engine_watch import Presence
from consumers.health import Health, HealthFile
from consumers.metrics import ConsumerMetrics
from consumers.reports import Reports


def test_a_report_is_due_at_once_then_every_second_and_when_it_is_hastened() -> None:
    reports = Reports(ConsumerMetrics())
    assert reports.due(0.0)
    reports.keep(reports.make(None, {}, {}), Presence.ABSENT, 0.0)
    assert [reports.due(now) for now in (0.0, 0.99, 1.0)] == [False, False, True]
    reports.hasten(0.5)
    assert reports.due(0.5)


def test_it_says_in_the_health_file_what_it_says_to_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    metrics = ConsumerMetrics(consumed=7, lag={"bars/0": 3})
    reports = Reports(metrics, HealthFile(path))
    since = time.monotonic() - 60
    report = reports.make(since, {"bars": 2}, {"bars/1": "stopped at 5"})
    assert (report.lag, report.counters["records_total"], report.partitions) == ({"bars/0": 3}, 7, {"bars": 2})
    reports.keep(report, Presence.WELCOMED, 0.0)
    kept = msgspec.json.decode(path.read_bytes(), type=Health)
    assert (kept.engine, kept.stopped) == ("welcomed", {"bars/1": "stopped at 5"})
    assert kept.kafka_silent_since_ms == report.kafka_silent_since_ms is not None
    assert kept.at_ms - (kept.kafka_silent_since_ms or 0) > 59_000
    reports.close()
    assert not path.exists()


def test_that_kafka_is_silent_is_logged_once_and_that_it_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    reports = Reports(ConsumerMetrics())
    for since in (None, 1.0, 1.0, None, None):
        reports.make(since, {}, {})
    assert caplog.messages == ["Kafka does not answer: still trying", "Kafka answers again"]


def test_the_counters_are_logged_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "consumers.reports")
    reports = Reports(ConsumerMetrics(consumed=41))
    later = time.monotonic() + 30.0
    for now in (later - 15.0, later, later + 29.0, later + 31.0):
        reports.keep(reports.make(None, {}, {}), Presence.ABSENT, now)
    assert len(caplog.messages) == 2
    assert all("'consumed': 41" in message for message in caplog.messages)
