"""Each process refuses to start where another user has made its folder, its board or its lock first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.strangers_file import STRANGER


@pytest.mark.skipif(
    os.getuid() != 0, reason="only root can give a file away; tests/stream_engine/util have the rest"
)
@pytest.mark.parametrize("process", ["engine", "api"])
@pytest.mark.parametrize("made", ["the folder of the sockets", "a socket", "the lock"])
def test_it_says_whose_it_is_and_what_to_do(process: str, made: str, tmp_path: Path) -> None:
    run, board = tmp_path / "run", tmp_path / "ready.board"
    run.mkdir()
    lock = "engine" if process == "engine" else "worker-0"
    path = {
        "the folder of the sockets": run,
        "a socket": run / "engine.sock",
        "the lock": Path(f"{board}.{lock}"),
    }[made]
    if path != run:
        path.touch()
    os.chown(path, STRANGER, STRANGER)
    clean = {name: value for name, value in os.environ.items() if "STREAM_ENGINE" not in name}
    places = {
        "STREAM_ENGINE_BOARD_PATH": str(board),
        "STREAM_ENGINE_TRANSPORT_ENGINE": f"ipc://{run}/engine.sock",
        "STREAM_ENGINE_TRANSPORT_EVENTS": f"ipc://{run}/events.sock",
        "STREAM_ENGINE_API_PORT": "0",
    }
    command = [sys.executable, "-m", "stream_engine.cli", "serve", process]
    ended = subprocess.run(command, env=clean | places, capture_output=True, text=True, timeout=100)
    assert ended.returncode != 0
    assert str(path) in ended.stderr
    assert "name another place (board.path, transport.engine, transport.events)" in ended.stderr
    assert path.exists()
