"""One Apache Kafka broker (KRaft, single node) in the background, kept in one data folder.

Everything about a broker is in its data folder: configuration, records, pid file and logs.
"""

from __future__ import annotations

import base64
import fcntl
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from stream_engine.util.ports import free_port

from . import artifacts, properties
from .errors import LocalKafkaError, PortInUseError
from .process import ProcessRecord, kill, launch, read_record, terminate, write_record
from .properties import SecureListener
from .readiness import broker_cluster_id

DEFAULT_PORT = 9092
DEFAULT_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = 5.0
_LOG_TAIL_LINES = 20
_PORT_TAKEN = "Address already in use"  # as Java words it in the broker's log


class BrokerState(Enum):
    """STOPPED -> STARTING -> READY -> STOPPED; a killed broker is STOPPED from any state."""

    STOPPED = "stopped"
    STARTING = "starting"
    """the process lives, and does not answer a metadata request"""
    READY = "ready"


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker as seen in one moment."""

    state: BrokerState
    data_dir: Path
    port: int | None = None
    pid: int | None = None

    @property
    def bootstrap(self) -> str | None:
        """`host:port` for clients; None when no broker runs."""
        return None if self.port is None else f"{properties.HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        return _Layout(self.data_dir).log


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker that answers."""

    bootstrap: str
    port: int
    pid: int
    data_dir: Path
    log_file: Path
    already_running: bool
    """True when `start` found it and started nothing"""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The files of a data folder."""

    root: Path

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def server_properties(self) -> Path:
        return self.root / "server.properties"

    @property
    def log4j2_properties(self) -> Path:
        return self.root / "log4j2.properties"

    @property
    def pid_file(self) -> Path:
        return self.root / "broker.pid"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def log(self) -> Path:
        return self.root / "kafka.log"

    @property
    def output(self) -> Path:
        return self.root / "output.log"

    @property
    def meta_properties(self) -> Path:
        return self.records / "meta.properties"


def default_data_dir() -> Path:
    """The data folder of a broker for which none was chosen: stream-engine/kafka in the XDG data folder."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "stream-engine" / "kafka"


def start(
    data_dir: Path,
    port: int = DEFAULT_PORT,
    timeout: float = DEFAULT_START_TIMEOUT_S,
    secure: Sequence[SecureListener] = (),
) -> BrokerInfo:
    """Starts the broker of a data folder and returns when it answers; fetches Kafka the first time.

    Starting a broker that runs already is no error: it is returned with `already_running`.

    Args:
        data_dir: created when absent; its topics and offsets are found again on the next start.
        port: TCP port on 127.0.0.1.
        timeout: seconds from the launch to the first answer; the download does not count.
        secure: further ports of it, with other security protocols.

    Raises:
        PortInUseError: another program listens on the port.
        LocalKafkaError: the `broker` extra is missing, Kafka can't be fetched, or the broker ended or did
            not answer in time (with the end of its log).
    """
    layout = _Layout(_usable(data_dir))
    layout.root.mkdir(parents=True, exist_ok=True)
    with _exclusive(layout):
        record = read_record(layout.pid_file)
        if record is not None and record.process() is not None:
            if record.port != port:
                raise LocalKafkaError(
                    f"The broker of {layout.root} already runs on port {record.port}: use that, or stop it first."
                )
            _await_ready(layout, record, timeout)
            return _info(layout, record, already_running=True)
        _check_port(port)
        record = _launch(layout, port, secure)
        try:
            _await_ready(layout, record, timeout)
        except BaseException:
            _end(layout, record, _STOP_TIMEOUT_S)
            raise
        return _info(layout, record, already_running=False)


def stop(data_dir: Path, timeout: float = _STOP_TIMEOUT_S) -> bool:
    """Stops the broker of a data folder: SIGTERM, then SIGKILL after `timeout` seconds.

    Returns:
        False when no broker was running there.
    """
    layout = _Layout(_usable(data_dir))
    record = read_record(layout.pid_file)
    if record is None:
        return False
    return _end(layout, record, timeout)


def kill9(data_dir: Path) -> None:
    """Ends the broker of a data folder without warning, as a crash does; nothing when none runs."""
    layout = _Layout(_usable(data_dir))
    record = read_record(layout.pid_file)
    if record is not None and (process := record.process()) is not None:
        kill(process)


def status(data_dir: Path) -> BrokerStatus:
    """The state of the broker of a data folder; asks a live one whether it answers."""
    layout = _Layout(_usable(data_dir))
    record = read_record(layout.pid_file)
    if record is None or record.process() is None:
        return BrokerStatus(BrokerState.STOPPED, layout.root)
    state = BrokerState.READY if _answers(layout, record) else BrokerState.STARTING
    return BrokerStatus(state, layout.root, record.port, record.pid)


def _usable(data_dir: Path) -> Path:
    root = Path(data_dir).expanduser().resolve()
    if "," in str(root):  # log.dirs is a list; Kafka knows no escape for its separator
        raise LocalKafkaError(f"Kafka cannot keep data in {root}: choose a folder without a comma in its path.")
    return root


@contextmanager
def _exclusive(layout: _Layout) -> Iterator[None]:
    # Two starts at once: the second waits and then finds the first one's broker.
    with layout.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _launch(layout: _Layout, port: int, secure: Sequence[SecureListener]) -> ProcessRecord:
    java, class_path = str(artifacts.java_executable()), artifacts.class_path()
    layout.temporary.mkdir(exist_ok=True)
    layout.log4j2_properties.write_text(properties.log4j2_properties(layout.log), "utf-8")
    layout.server_properties.write_text(
        properties.server_properties(port, free_port(), layout.records, secure), "utf-8"
    )
    jvm = [
        java,
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # a short-lived broker starts faster without the optimising compiler
        f"-Djava.io.tmpdir={layout.temporary}",  # native libraries are unpacked there, and left by a kill
        f"-Dlog4j2.configurationFile={layout.log4j2_properties}",
        "-cp",
        class_path,
    ]
    if not layout.meta_properties.exists():
        _format(layout, jvm)
    command = [jvm[0], "-Xms256m", "-Xmx512m", *jvm[1:], "kafka.Kafka", str(layout.server_properties)]
    record = launch(command, layout.output, port, marker=str(layout.server_properties))
    write_record(layout.pid_file, record)
    return record


def _format(layout: _Layout, jvm: list[str]) -> None:
    # `-t=ID` in one word, because an id may begin with "-".
    arguments = ["format", f"-t={_new_cluster_id()}", "-c", str(layout.server_properties)]
    done = subprocess.run(
        [*jvm, "kafka.tools.StorageTool", *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise LocalKafkaError(f"Kafka cannot use {layout.records}:\n{done.stdout}{done.stderr}")


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        # As the broker binds: sockets that a stopped one left in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((properties.HOST, port))
        except OSError as error:
            raise PortInUseError(
                f"Port {port} of {properties.HOST} cannot be used ({error.strerror}). Choose another port, end "
                f"the program that holds this one, or, if that is the Kafka you want, set "
                f"KAFKA_BOOTSTRAP_SERVERS={properties.HOST}:{port} and start none."
            ) from error


def _await_ready(layout: _Layout, record: ProcessRecord, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while record.process() is not None:
        if _answers(layout, record):
            return
        if time.monotonic() > deadline:
            raise LocalKafkaError(f"Kafka did not answer within {timeout:.0f} s.\n{_log_tail(layout)}")
        time.sleep(0.1)
    tail = _log_tail(layout)
    kind = PortInUseError if _PORT_TAKEN in tail else LocalKafkaError
    raise kind(f"Kafka ended while it started.\n{tail}")


def _answers(layout: _Layout, record: ProcessRecord) -> bool:
    found = broker_cluster_id(properties.HOST, record.port, _ANSWER_TIMEOUT_S)
    return found is not None and found == _cluster_id(layout)


def _cluster_id(layout: _Layout) -> str | None:
    for line in layout.meta_properties.read_text("utf-8").splitlines():
        key, _, value = line.partition("=")
        if key == "cluster.id":
            return value
    return None


def _log_tail(layout: _Layout) -> str:
    parts = []
    for file in (layout.output, layout.log):
        lines = file.read_text("utf-8", "replace").splitlines() if file.exists() else []
        if lines:
            parts.append("\n".join([f"End of {file}:", *lines[-_LOG_TAIL_LINES:]]))
    return "\n".join(parts)


def _end(layout: _Layout, record: ProcessRecord, timeout: float) -> bool:
    process = record.process()
    if process is not None:
        terminate(process, timeout)
    layout.pid_file.unlink(missing_ok=True)
    return process is not None


def _info(layout: _Layout, record: ProcessRecord, already_running: bool) -> BrokerInfo:
    bootstrap = f"{properties.HOST}:{record.port}"
    return BrokerInfo(
        bootstrap=bootstrap,
        port=record.port,
        pid=record.pid,
        data_dir=layout.root,
        log_file=layout.log,
        already_running=already_running,
    )
