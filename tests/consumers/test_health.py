"""The consumer's sign of life and what is read from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.health import STALE_AFTER_S, HealthFile, ailments

NOW_MS = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "consumer.health"


def test_a_consumer_that_does_its_work_is_well_until_its_loop_stands_still(path: Path) -> None:
    HealthFile(path).write(NOW_MS, "welcomed", None)
    assert ailments(path, NOW_MS + int(STALE_AFTER_S * 1000)) == []
    (reason,) = ailments(path, NOW_MS + int(STALE_AFTER_S * 1000) + 1000)
    assert "has not turned for 16 s" in reason


def test_each_thing_that_is_missing_is_named(path: Path) -> None:
    HealthFile(path).write(NOW_MS, "silent", NOW_MS - 60_000)
    assert ailments(path, NOW_MS) == [
        "the engine is silent",
        "Kafka has not answered since 2023-11-14T22:12:20Z",
    ]


def test_after_a_clean_stop_there_is_no_consumer(path: Path) -> None:
    file = HealthFile(path)
    file.write(NOW_MS, "welcomed", None)
    file.remove()
    (reason,) = ailments(path, NOW_MS)
    assert "not running" in reason
    assert list(path.parent.iterdir()) == []


def test_what_is_no_health_file_is_said(path: Path) -> None:
    HealthFile(path)
    path.write_bytes(b"\x00")
    (reason,) = ailments(path, NOW_MS)
    assert str(path) in reason
