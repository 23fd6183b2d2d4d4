"""The API as its own process: what it imports, how it starts, how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import httpx
import pytest

from query_api.server import WORKER
from query_api.worker import claim_worker
from stream_engine.board.reader import BoardReader
from stream_engine.config.transport import TransportSettings
from stream_engine.messages import Snapshot, SnapshotRequest
from stream_engine.util.ports import free_port
from stream_engine.util.pulse import PulseWatch
from tests.support.api_service import TREND, Board, ScriptedEngine

HEAVY = ("torch", "transformers", "tokenizers", "kafka", "polars", "safetensors")


def test_the_api_imports_neither_the_model_nor_kafka():
    program = (
        "import sys, query_api.server, query_api.app\n"
        "from stream_engine.config.config import Config\n"
        "query_api.app.create_app(Config()).openapi()\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.fixture
def engine(folder: Path) -> Iterator[ScriptedEngine]:
    made = ScriptedEngine(TransportSettings(f"ipc://{folder}/engine", f"ipc://{folder}/events"))
    made.on[SnapshotRequest] = lambda _: Snapshot(0, ())
    yield made
    made.close()


@pytest.fixture
def board(folder: Path) -> Iterator[Board]:
    made = Board(folder / "board")
    made.ready()
    yield made
    made.writer.close()


class Process:
    """``query_api.server.run`` in a process of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        port = free_port()
        settings = {
            "STREAM_ENGINE_API_PORT": str(port),
            "STREAM_ENGINE_API_WORKERS": str(workers),
            "STREAM_ENGINE_BOARD_PATH": str(folder / "board"),
            "STREAM_ENGINE_TRANSPORT_ENGINE": f"ipc://{folder}/engine",
            "STREAM_ENGINE_TRANSPORT_EVENTS": f"ipc://{folder}/events",
            "STREAM_ENGINE_LIFE_FOLDER": str(folder / "life"),
            "STREAM_ENGINE_LIFE_HUNG_AFTER_S": "4",
        }
        self._watch = PulseWatch(folder / "life", WORKER, 4.0, 600.0)
        self._workers = workers
        program = folder / "serve.py"  # a file, because spawned workers import the main module again
        program.write_text(
            "import logging, os\n"
            "from query_api import server\n"
            "from query_api.server import run\n"
            "from stream_engine.config.config import Config\n"
            "create_app = server.create_app\n"
            "async def pid() -> int:\n"
            "    return os.getpid()\n"
            "async def spin(chosen: int) -> None:\n"
            "    while chosen == os.getpid():\n"
            "        pass\n"
            "def and_more(*parts):\n"
            "    app = create_app(*parts)\n"
            "    app.add_api_route('/pid', pid)\n"
            "    app.add_api_route('/spin/{chosen}', spin)\n"
            "    return app\n"
            "server.create_app = and_more\n"
            "if __name__ == '__main__':\n"
            "    logging.basicConfig(level=logging.INFO, format='%(message)s')\n"
            "    run(Config.load())\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, str(program)], env=os.environ | settings, stderr=subprocess.PIPE, text=True
        )
        self.url = f"http://127.0.0.1:{port}"

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/health/live", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        pytest.fail(f"the API did not come up: {self.stop(signal.SIGKILL)}")

    def make_spin(self, pid: int) -> None:
        """The request that does it has no answer; the other workers' have."""
        with suppress(httpx.TimeoutException):
            while httpx.get(f"{self.url}/spin/{pid}", timeout=2).status_code == 200:
                pass

    def await_workers(self, gone: set[int]) -> set[int]:
        """The workers' process ids, once all give signs of life and none of ``gone`` is among them."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = {int(path.stem.partition("-")[2]) for path in self._watch.folder.glob(f"{WORKER}-*.life")}
            if len(found) == self._workers and not found & gone and not self._watch.ailments():
                return found
            time.sleep(0.1)
        pytest.fail(f"not {self._workers} workers: {found}; {self.stop(signal.SIGKILL)}")

    def stop(self, number: int) -> tuple[int, str]:
        """Exit status and log after the signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_process_stops_cleanly_with_a_stream_open(folder, engine, board, number):
    api = Process(folder, workers=1)
    try:
        api.wait_until_up()
        with httpx.stream("GET", f"{api.url}/v1/events", timeout=30) as events:
            lines = events.iter_lines()
            assert next(lines) == "event: connected"
            api.process.send_signal(number)
            assert "event: shutdown" in list(lines)
    finally:
        status, log = api.stop(signal.SIGTERM)

    assert status == 0, log
    assert "Traceback" not in log
    started = json.loads(next(line for line in log.splitlines() if "api_listening" in line))
    assert (started["workers"], started["pid"]) == (1, api.process.pid)
    assert api.url.endswith(f":{started['port']}")


def test_several_workers_answer_and_sum_their_metrics(folder, engine, board):
    api = Process(folder, workers=2)
    try:
        api.wait_until_up()
        for _ in range(40):  # a new connection each, so that both workers get some
            reply = httpx.post(f"{api.url}/v1/sessions/AAPL/query", json={"question": TREND}, timeout=30)
            assert reply.json()["path"] == "fast"
        counts = {line.rpartition(" ")[2] for line in _fast_counts(api)}
        with httpx.stream("GET", f"{api.url}/v1/events", timeout=30) as events:
            lines = events.iter_lines()
            assert next(lines) == "event: connected"
            api.process.send_signal(signal.SIGTERM)
            assert "event: shutdown" in list(lines)
    finally:
        status, log = api.stop(signal.SIGTERM)

    assert counts == {"40.0"}
    assert status == 0, log
    assert "Traceback" not in log


def _fast_counts(api: Process) -> list[str]:
    """The counter as several scrapes, of whichever worker, show it."""
    texts = [httpx.get(f"{api.url}/metrics", timeout=30).text for _ in range(6)]
    return [line for text in texts for line in text.splitlines() if line.startswith("query_api_fast_path_total")]


@pytest.mark.parametrize("how", ["stopped", "spinning"])
def test_a_worker_that_hangs_is_replaced(folder, engine, board, how):
    """A spinning one still has a thread that answers uvicorn."""
    api = Process(folder, workers=2)
    try:
        api.wait_until_up()
        first = api.await_workers(set())
        hung = httpx.get(f"{api.url}/pid", timeout=5).json()
        if how == "stopped":
            os.kill(hung, signal.SIGSTOP)
        else:
            api.make_spin(hung)
        second = api.await_workers({hung})
        api.wait_until_up()
        answers = [httpx.get(f"{api.url}/health/live", timeout=60).status_code for _ in range(10)]
    finally:
        status, log = api.stop(signal.SIGTERM)

    assert answers == [200] * 10
    assert hung in first - second
    assert first & second == first - {hung}
    assert status == 0, log
    assert list((folder / "life").iterdir()) == []


def test_an_address_in_use_is_said_and_is_an_error(folder):
    api = Process(folder, workers=1)
    address = api.url.removeprefix("http://")
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        status, log = api.stop(signal.SIGCONT)

    assert status == 1
    assert log.startswith(f"cannot listen on {address}: Address already in use")


def test_each_process_claims_its_own_worker_number(tmp_path):
    board = tmp_path / "board"
    with claim_worker(board) as first, claim_worker(board) as second:
        assert (first, second) == (0, 1)
    with claim_worker(board) as again:
        assert again == 0


def test_a_board_without_room_for_this_worker_is_a_miss_that_is_logged_once(make_service, monkeypatch, caplog):
    monkeypatch.setattr("query_api.app.claim_worker", lambda _: nullcontext(99))
    service = make_service()
    service.board.ready()

    assert [service.ask().status_code for _ in range(3)] == [404, 404, 404]

    assert service.metric("query_api_fast_path_total", outcome="unreadable") == 3
    assert sum("cannot be read" in record.message for record in caplog.records) == 1
    assert BoardReader.open(service.config.board.path, 0).alive()
