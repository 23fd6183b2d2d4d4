"""A service of its own: free ports, folders and names that nothing else uses, and nothing left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from stream_engine.client.address import wait_until_ready
from stream_engine.client.failure import Failure
from stream_engine.client.options import Options
from stream_engine.config.config import Config
from stream_engine.config.kafka import KafkaSettings
from stream_engine.util.ports import free_port

STOP_TIMEOUT_S = 60.0
TAIL_LINES = 25


class PrivateService:
    """``stream-engine serve`` for the length of a block, on a broker at ``bootstrap``.

    ``settings`` are further environment variables. The processes also end when this process is killed, because
    the supervisor watches the pipe that is its standard input.
    """

    def __init__(self, options: Options, bootstrap: str, settings: Mapping[str, str] | None = None) -> None:
        self._options = options
        name = f"stream-engine-{uuid.uuid4().hex[:8]}"
        self.bootstrap = bootstrap
        self.topic = f"{name}.market.bars"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        shared_memory = Path("/dev/shm")  # noqa: S108 - shared memory is the point
        self._board_folder = shared_memory / name if os.access(shared_memory, os.W_OK) else self.folder / "board"
        self.log_file = self.folder / "service.log"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            **os.environ,
            "STREAM_ENGINE_KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "STREAM_ENGINE_KAFKA_BARS_TOPIC": self.topic,
            "STREAM_ENGINE_KAFKA_TRADES_TOPIC": f"{name}.market.trades",
            "STREAM_ENGINE_KAFKA_WINDOWS_TOPIC": f"{name}.windows",
            "STREAM_ENGINE_KAFKA_STANDING_TOPIC": f"{name}.standing-queries",
            "STREAM_ENGINE_KAFKA_ANSWERS_TOPIC": f"{name}.answers",
            "STREAM_ENGINE_KAFKA_GROUP_ID": name,
            "STREAM_ENGINE_KAFKA_HEALTH_FILE": str(self.folder / "consumer.health"),
            "STREAM_ENGINE_LIFE_FOLDER": str(self.folder),
            "STREAM_ENGINE_RISK_STATE_FILE": str(self.folder / "risk.json"),
            "STREAM_ENGINE_BOARD_PATH": str(self._board_folder / "ready.board"),
            "STREAM_ENGINE_TRANSPORT_ENGINE": f"ipc://{self.folder}/engine.sock",
            "STREAM_ENGINE_TRANSPORT_EVENTS": f"ipc://{self.folder}/events.sock",
            "STREAM_ENGINE_API_HOST": "127.0.0.1",
            "STREAM_ENGINE_API_PORT": str(port),
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def kafka(self) -> KafkaSettings:
        """The Kafka settings that its processes have."""
        return Config.load(self._options.config_file, self.environment).kafka

    def __enter__(self) -> PrivateService:
        command = [sys.executable, "-m", "stream_engine.cli", *self._options.arguments()]
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "serve", "--until-stdin-closes"],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for the one who stops it
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._board_folder, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> int | None:
        """Stop all processes; the supervisor's exit status."""
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.stdin is not None:
            process.stdin.close()
        return process.returncode

    def await_ready(self, timeout_s: float) -> None:
        """Returns when questions can be answered. Raises a Failure with the end of the log otherwise."""
        process = self._process
        assert process is not None
        if not wait_until_ready(self.url, timeout_s, gone=lambda: process.poll() is not None):
            ended = process.poll()
            why = f"not ready within {timeout_s:.0f} s" if ended is None else f"ended with status {ended}"
            raise Failure(f"the service: {why}. The end of its log:\n{self.log_tail()}")

    def log_tail(self) -> str:
        return "\n".join(self.log_file.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:])

    def process_ids(self, name: str) -> list[int]:
        """Process ids of every start of a child so far, oldest first."""
        log = self.log_file.read_text("utf-8", "replace")
        return [int(pid) for pid in re.findall(rf"^{name}: started, pid (\d+)$", log, re.M)]

    @property
    def supervisor_pid(self) -> int:
        assert self._process is not None
        return self._process.pid
