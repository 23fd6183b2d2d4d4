"""The consumer's sign of life and what is read from it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.health import HealthFile, ailments, stopped_partitions
from stream_engine.config.rules import ConfigError
from tests.support.hostile import NESTED, mutated

NOW_MS = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "consumer.health"


def test_a_consumer_that_does_its_work_is_well_until_its_loop_stands_still(path: Path) -> None:
    HealthFile(path).write(NOW_MS, "welcomed", None)
    assert ailments(path, NOW_MS + 15_000) == []
    (reason,) = ailments(path, NOW_MS + 16_000)
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


VALID = {
    "pid": 7, "at_ms": NOW_MS, "engine": "welcomed", "kafka_silent_since_ms": NOW_MS - 1,
    "stopped": {"market.bars/0": "torn"},
}  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutated(VALID).map(lambda made: msgspec.json.encode(made)) | st.binary(max_size=50) | st.just(NESTED))
def test_whatever_the_file_says_a_check_ends_in_words(path: Path, content: bytes) -> None:
    HealthFile(path)
    path.write_bytes(content)
    assert all(isinstance(reason, str) and len(reason) < 50_000 for reason in ailments(path, NOW_MS))
    assert all(isinstance(stop, str) for stop in stopped_partitions(path))


@pytest.mark.parametrize(
    "content", [b'{"pid":"\xff"}', NESTED, b" " * 2_000_000], ids=["not UTF-8", "nested", "large"]
)
def test_a_file_that_means_harm_is_an_ailment_and_stops_nothing(content: bytes, path: Path) -> None:
    HealthFile(path)
    path.write_bytes(content)
    (reason,) = ailments(path, NOW_MS)
    assert str(path) in reason
    assert stopped_partitions(path) == []


def test_a_file_that_cannot_be_written_is_logged_once_and_again_after_it_could(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = HealthFile(path)
    for _ in range(2):
        path.parent.rmdir()
        for _ in range(3):
            file.write(NOW_MS, "welcomed", None)
        path.parent.mkdir()
        file.write(NOW_MS, "welcomed", None)
        assert ailments(path, NOW_MS) == []
        path.unlink()
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "kafka.health_file cannot be written"
    ] * 2


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(ConfigError, match=r"kafka\.health_file"):
        HealthFile(tmp_path / "run" / "consumer.health")
