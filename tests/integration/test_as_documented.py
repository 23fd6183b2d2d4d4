"""The API's own document, held against the running service: requests made from it by the hundred, alone and in
sequences, well-formed and not. Each answer is a documented one, in status, type and shape; none is a fault."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kafka import KafkaProducer

from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.options import Options

SETTINGS = Path(__file__).with_name("schemathesis.toml")
PATIENCE_S = 180.0
BARS = 40


@pytest.fixture(scope="module")
def service(kafka: Any) -> Iterator[PrivateService]:
    """With two live sessions and a standing query."""
    quick = {"STREAM_ENGINE_API_MAX_WAIT_MS": "50", "STREAM_ENGINE_API_HEARTBEAT_S": "0.05"}
    with PrivateService(Options(None, "info"), kafka.bootstrap, quick) as started:
        started.await_ready(PATIENCE_S)
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all")
        for session, step in (("RISE", 0.8), ("FALL", -0.8)):
            producer.send(started.topic, key=session.encode(), value=bars(step)).get(30)
        producer.close()
        with httpx.Client(base_url=started.url, timeout=60.0, trust_env=False) as http:
            for session in ("RISE", "FALL"):
                waiting = {"question": "What is the trend?", "min_version": 1, "wait_ms": 50}
                deadline = time.monotonic() + PATIENCE_S
                while (reply := http.post(f"/v1/sessions/{session}/query", json=waiting)).status_code != 200:
                    assert time.monotonic() < deadline, reply.text
            first = {"id": "first", "session": "RISE", "question": "What is the trend?"}
            assert http.post("/v1/standing-queries", json=first).status_code == 201
        yield started


def bars(step: float) -> bytes:
    closes = [200 + step * number for number in range(BARS)]
    ohlc = [{"open": close, "high": close + 1, "low": close - 1, "close": close} for close in closes]
    return json.dumps([{"ts": 1_700_000_000 + 60 * at, **prices} for at, prices in enumerate(ohlc)]).encode()


def test_every_answer_is_a_documented_one(service: PrivateService, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    tool = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(SETTINGS), "run"]
    done = subprocess.run(
        [
            *tool,
            f"{service.url}/openapi.json",
            "--no-color",
            "--report",
            "json",
            "--report-json-path",
            str(report),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text())
    assert told["operations"]["tested"] == told["operations"]["total"]
    assert told["test_cases"]["generated"] > 900
    assert told["warnings"]["missing_test_data"] == []
    assert told["warnings"]["validation_mismatch"] == []


def test_a_405_names_every_method_that_is_documented(service: PrivateService) -> None:
    with httpx.Client(base_url=service.url, timeout=60.0, trust_env=False) as http:
        paths = http.get("/openapi.json").json()["paths"]
        for path, operations in paths.items():
            taken = {method.upper() for method in operations} | {"OPTIONS"}
            taken |= {"HEAD"} if "GET" in taken else set()
            for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "QUERY"} - taken:
                reply = http.request(method, path.replace("{", "").replace("}", ""))
                assert reply.status_code == 405, (method, path)
                assert set(reply.headers["allow"].split(", ")) == taken, (method, path)
    assert len(paths) >= 9
