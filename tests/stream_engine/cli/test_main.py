"""The command line as a user runs it: help that answers at once, failures in one line, exit statuses."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from rich.console import Console

from stream_engine.cli import main as command_line
from stream_engine.cli.commands.query import told
from stream_engine.cli.live_view import View, age, spark
from stream_engine.model.profile import EMBEDDED, PROFILE_FILE, TOKENIZER_FILE

COMMANDS = ("serve", "produce", "query", "watch", "demo", "kafka", "train", "calibrate", "simulate")
HEAVY = (
    "torch", "transformers", "tokenizers", "polars", "kafka", "zmq", "httpx", "rich", "fastapi", "numpy",
    "scipy", "sklearn", "matplotlib",
)  # fmt: skip
PATIENCE_S = 120.0
ANSWER: dict[str, Any] = {
    "session": "BTC/USD",
    "question": "Trend?",
    "answer": "up",
    "class": "trend",
    "path": "fast",
    "gate": True,
    "gap": 4.25,
    "tau": 2.0,
    "confidence": None,
    "fast_set_mass": 0.998,
    "session_version": 42,
    "topic": "market.bars",
    "partition": 1,
    "offset": 41,
    "event_time": "2024-05-01T00:00:00Z",
    "age_ms": 1500,
    "latency_us": 210,
    "window_bars": 32,
    "bars": 40,
    "state": "LIVE",
    "entry_tokens": 7,
    "reused_tokens": 7,
    "model": "embedded",
}


def test_an_age_that_is_unknown_is_said() -> None:
    text = told(ANSWER | {"age_ms": None, "event_time": None})
    assert "age unknown" in text
    assert "bar -," in text


def cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STREAM_ENGINE_", "KAFKA_"))}
    return subprocess.run(
        [sys.executable, "-m", "stream_engine.cli", *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


class FakeApi(BaseHTTPRequestHandler):
    """Replies with what the test put in ``reply``, and keeps what was asked."""

    reply: ClassVar[tuple[int, dict[str, Any]]] = (200, ANSWER)
    asked: ClassVar[list[tuple[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).asked.append((self.path, body))
        status, content = self.reply
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[str]:
    FakeApi.asked, FakeApi.reply = [], (200, ANSWER)
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeApi) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_help_names_every_command_and_shows_how() -> None:
    shown = cli("--help")
    assert shown.returncode == 0
    for command in COMMANDS:
        assert f"\n  {command} " in shown.stdout
    assert 'stream-engine query AAPL "What is the trend?"' in shown.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples(command: str) -> None:
    shown = cli(command, "--help")
    assert shown.returncode == 0
    assert f"stream-engine {command}" in shown.stdout


def test_help_imports_nothing_that_takes_time() -> None:
    script = (
        "import sys; from stream_engine.cli.main import cli\n"
        "cli.main(['serve', '--help'], standalone_mode=False)\n"
        "print('LOADED', *sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    loaded = set(shown.stdout.partition("LOADED")[2].split())
    assert "click" in loaded
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize(
    ("variable", "value", "setting"),
    [
        ("STREAM_ENGINE_ENGINE_KV_MEMORY", "0", "engine.kv_memory"),
        ("STREAM_ENGINE_ENGINE_MAX_SESSIONS", "64", "engine.kv_memory"),
        ("STREAM_ENGINE_API_PORT", "many", "api.port"),
        ("STREAM_ENGINE_KAFKA_GRUOP_ID", "desk", "kafka.gruop_id"),
    ],
)
@pytest.mark.parametrize("command", [("serve",), ("serve", "engine"), ("serve", "api"), ("query", "A", "Trend?")])
def test_a_wrong_setting_is_one_line_that_names_it(
    command: tuple[str, ...], variable: str, value: str, setting: str
) -> None:
    ended = cli(*command, **{variable: value})
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert setting in ended.stderr


def test_a_wrong_setting_of_the_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "desk.toml"
    file.write_text("[kafka]\npartitions = -1\n")
    for ended in (
        cli("--config", str(file), "serve", "consumer"),
        cli("serve", "consumer", STREAM_ENGINE_CONFIG=str(file)),
    ):
        assert ended.returncode == 2
        assert "kafka.partitions" in ended.stderr
        assert ended.stderr.count("\n") == 1


def test_a_file_that_is_absent_is_named(tmp_path: Path) -> None:
    ended = cli("--config", str(tmp_path / "none.toml"), "query", "A", "Trend?")
    assert ended.returncode == 2
    assert "none.toml" in ended.stderr


def test_a_broker_that_is_not_there_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    bars = tmp_path / "bars.csv"
    bars.write_text("date,open,high,low,close\n2024-01-02,1,2,0.5,1.5\n")
    ended = cli("produce", str(bars), "--symbol", "A", KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert ended.returncode == 1
    assert "no Kafka broker at 127.0.0.1:1" in ended.stderr
    assert "stream-engine kafka start" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_told_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = cli("serve", STREAM_ENGINE_API_PORT=port, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert ended.returncode == 2
    assert port in ended.stderr
    assert "STREAM_ENGINE_API_PORT" in ended.stderr
    assert "started" not in ended.stdout


ASCII_ONLY = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
"""An environment in which text is ASCII, unless a program says otherwise."""


def test_a_locale_of_few_characters_changes_neither_settings_nor_status(api: str, tmp_path: Path) -> None:
    file = tmp_path / "desk.toml"
    file.write_text('[kafka]\ngroup_id = "bureau-\u00e9t\u00e9"\n[api]\nworkers = 0\n', encoding="utf-8")
    refused = cli("--config", str(file), "serve", **ASCII_ONLY)
    assert refused.returncode == 2
    assert "api.workers = 0" in refused.stderr, "the file is read up to what is wrong in it"
    FakeApi.reply = (200, ANSWER | {"session": "\u65e5\u7d4c"})
    asked = cli("query", "N225", "Trend?", "--url", api, **ASCII_ONLY)
    assert asked.returncode == 0, asked.stderr
    assert "\u65e5\u7d4c: up" in asked.stdout
    listed = cli("models", "list", **ASCII_ONLY)
    assert listed.returncode == 0, listed.stderr


def test_what_a_terminal_cannot_show_is_shown_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "latin-1"))
    monkeypatch.setattr(command_line, "cli", SimpleNamespace(main=lambda **_: Console().print("\u00e9 \u65e5")))
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    sys.stdout.flush()
    assert (ended.value.code, raw.getvalue()) == (0, b"\xe9 \\u65e5\n")


def test_a_model_that_is_no_folder_is_named() -> None:
    ended = cli("serve", STREAM_ENGINE_ENGINE_MODEL="/nowhere/at-all")
    assert ended.returncode == 2
    assert "engine.model = '/nowhere/at-all'" in ended.stderr


def test_a_file_without_bars_and_no_file_at_all_are_told(tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b\n1,2\n")
    ended = cli("produce", str(bad))
    assert ended.returncode == 1
    assert "bad.csv: no column for" in ended.stderr
    assert cli("produce").returncode == 2


def test_a_query_shows_the_answer_with_its_evidence(api: str) -> None:
    shown = cli("query", "BTC/USD", "Trend?", "--url", api)
    assert shown.returncode == 0
    assert shown.stdout.startswith("BTC/USD: up   (trend of the last 32 bars)\n")
    for evidence in ("fast, gate fired", "gap      4.25 (tau 2)", "market.bars/1 offset 41, version 42", "210 us"):
        assert evidence in shown.stdout
    assert FakeApi.asked == [
        ("/v1/sessions/BTC%2FUSD/query", {"question": "Trend?", "path": "auto", "wait_ms": 0})
    ]


def test_a_query_passes_every_bound_on_and_prints_json(api: str) -> None:
    bounds = "--path full --max-age-ms 900 --min-version 7 --min-offset 2:41 --wait-ms 250"
    shown = cli("query", "A", "Trend?", *bounds.split(), "--json", STREAM_ENGINE_URL=api)
    assert json.loads(shown.stdout) == ANSWER
    assert FakeApi.asked[0][1] == {
        "question": "Trend?",
        "path": "full",
        "max_age_ms": 900,
        "min_version": 7,
        "min_offset": {"partition": 2, "offset": 41},
        "wait_ms": 250,
    }


def test_a_refused_query_is_told_in_the_words_of_the_api(api: str) -> None:
    FakeApi.reply = (422, {"error": {"type": "invalid_request_error", "message": "it answers: trend"}})
    ended = cli("query", "A", "Who?", "--url", api)
    assert ended.returncode == 1
    assert ended.stderr == "Error: 422: it answers: trend\n"


def test_an_api_that_is_not_there_is_told_with_what_to_do() -> None:
    ended = cli("query", "A", "Trend?", "--url", "http://127.0.0.1:1")
    assert ended.returncode == 1
    assert "no API at http://127.0.0.1:1" in ended.stderr
    assert "stream-engine serve" in ended.stderr


def test_a_min_offset_without_a_partition_is_wrong_usage() -> None:
    ended = cli("query", "A", "Trend?", "--min-offset", "41")
    assert ended.returncode == 2
    assert "PARTITION:OFFSET" in ended.stderr


def test_kafka_status_of_a_folder_without_a_broker(tmp_path: Path) -> None:
    ended = cli("kafka", "status", "--data", str(tmp_path))
    assert ended.returncode == 1
    assert ended.stdout.startswith("stopped")


def test_a_folder_without_weights_is_told_by_the_engine_in_one_line(tmp_path: Path) -> None:
    for name in (PROFILE_FILE, TOKENIZER_FILE):
        (tmp_path / name).write_bytes((EMBEDDED / name).read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    ended = cli(
        "serve",
        "engine",
        STREAM_ENGINE_ENGINE_MODEL=str(tmp_path),
        STREAM_ENGINE_BOARD_PATH=str(tmp_path / "board"),
        STREAM_ENGINE_TRANSPORT_ENGINE=f"ipc://{tmp_path}/e",
        STREAM_ENGINE_TRANSPORT_EVENTS=f"ipc://{tmp_path}/v",
    )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"engine.model = '{tmp_path}'" in ended.stderr
    assert "mamba" in ended.stderr


def test_two_engines_on_one_board_are_refused(tmp_path: Path) -> None:
    board = tmp_path / "ready.board"
    with board.with_name("ready.board.engine").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ended = cli("serve", "engine", STREAM_ENGINE_BOARD_PATH=str(board))
    assert ended.returncode == 2
    assert "another engine runs on it" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_of_the_service_stops_cleanly_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    settings = {
        "STREAM_ENGINE_BOARD_PATH": str(tmp_path / "board"),
        "STREAM_ENGINE_TRANSPORT_ENGINE": f"ipc://{tmp_path}/e",
        "STREAM_ENGINE_TRANSPORT_EVENTS": f"ipc://{tmp_path}/v",
        "STREAM_ENGINE_API_PORT": "0",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "stream_engine.cli", "serve", "api"],
        env=os.environ | settings,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "api_listening" in line:
                break
        process.send_signal(number)
        try:
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
        assert "Traceback" not in process.stderr.read()


def test_a_line_of_blocks_spans_its_values() -> None:
    assert spark([1.0, 2.0, 3.0]) == "▁▄█"
    assert spark([5.0, 5.0]) == "▁▁"
    assert spark([]) == ""
    assert spark([-1.7e308, 1.7e308]) == "▁█"
    assert spark([0.0, 5e-324]) in ("▁█", "▁▁")


def test_the_view_fits_a_terminal_and_lists_standing_queries() -> None:
    session = {
        "id": "EURUSD=X", "state": "WARMING_UP", "bars": 31, "last_event_time": "2013-03-01T00:00:00Z",
        "last_bars": [[0, 1, 1, 1, 1234.5678 + n, 1] for n in range(5)], "ready_token": "accelerating",
        "ready_gap": 12.34,
    }  # fmt: skip
    query = {"id": "sq-1", "question": "What is the trend?", "session": "EUR*", "on": "change"}
    view = View("http://127.0.0.1:8080", {}, sessions=[session], queries=[query], health="ready", model="embedded")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(view.render())
    lines = console.export_text().splitlines()
    assert len(lines) == 5, lines  # nothing is broken over two lines
    assert "12.34  closed" in lines[2]
    assert lines[4].split() == ["sq-1:", "What", "is", "the", "trend?", "EUR*", "change"]


@pytest.mark.parametrize(
    ("event_time", "said"),
    [
        ("2024-01-01T00:00:20Z", "40 s"),
        ("2023-12-31T21:00:00Z", "3 h"),
        ("2013-03-01T00:00:00Z", "11 y"),
        (None, "-"),
    ],
)
def test_a_bars_age_is_told_in_one_unit(event_time: str | None, said: str) -> None:
    assert age(event_time, datetime(2024, 1, 1, 0, 1, tzinfo=UTC)) == said


def test_the_view_tells_the_gate_as_it_serves_now() -> None:
    session = {"state": "LIVE", "ready_gap": 2.5, "ready_token": "up"}
    view = View("http://x", {"tau": 2.0, "open": True})
    assert view._gate(session) == "fires"
    assert view._gate(session | {"ready_gap": 1.5}) == "below"
    assert view._gate(session | {"ready_token": None}) == "below"
    assert view._gate(session | {"state": "WARMING_UP"}) == "closed"
    assert View("http://x", {"tau": 2.0, "open": False})._gate(session) == "closed"
    assert View("http://x", {"tau": 3.0, "open": True})._gate(session) == "below"
    assert View("http://x", {})._gate(session) == "?"
