"""The load generator against the whole service on a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadgen.arrivals import schedule
from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.options import Options
from stream_engine.util.intervals import wilson

PATIENCE_S = 180.0
RHOS = (0.5, 4.0)
SESSIONS, UPDATES_PER_SECOND, SECONDS, SEED = 4, 2.0, 5.0, 3


@pytest.fixture(scope="module")
def service(kafka: Any, decisive_model: Path) -> Iterator[PrivateService]:
    settings = {"STREAM_ENGINE_ENGINE_MODEL": str(decisive_model)}
    with PrivateService(Options(None, "info"), kafka.bootstrap, settings) as started:
        started.await_ready(PATIENCE_S)
        yield started


def loadgen(service: PrivateService, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadgen", "run", *arguments],
        env=service.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_it_measures_what_it_drew(service: PrivateService, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    done = loadgen(
        service,
        f"--rho={','.join(map(str, RHOS))}",
        f"--seconds={SECONDS}",
        f"--sessions={SESSIONS}",
        f"--updates-per-second={UPDATES_PER_SECOND}",
        f"--seed={SEED}",
        f"--json={file}",
    )
    assert done.returncode == 0, done.stderr
    assert "Pre-positions" in done.stdout
    assert "other data" not in done.stdout

    found = json.loads(file.read_text())
    assert (found["model"], found["settings"]["topic"]) == ("embedded", service.topic)
    assert sum(times["count"] for times in found["baseline"].values()) == 48
    assert set(found["baseline"]) <= {"fallthrough", "cold"}, "the full path is what the fast one is compared with"
    for number, (phase, rho) in enumerate(zip(found["phases"], RHOS, strict=True)):
        plan = schedule(SEED + number, rho, SESSIONS, UPDATES_PER_SECOND, SECONDS)
        assert (phase["rho"], phase["updates"]) == (rho, len(plan.updates))
        assert (phase["queries"], phase["errors"]) == (len(plan.queries), {})
        assert sum(times["count"] for times in phase["paths"].values()) == len(plan.queries)
        # Whole intervals only: each pre-position that was completed has ended. Updates that waited together for a
        # step are one commit, and one that was followed at once may have had no time for a pre-position.
        settled = phase["hits"] + phase["wasted"]
        assert settled == phase["completed"] <= phase["commits"] <= phase["updates"]
        assert phase["rho_realised"] == pytest.approx(len(plan.queries) / phase["commits"])
        low, high = wilson(phase["hits"], settled, z=4.5)
        assert low < phase["hit_rate_closed_form"] < high
        assert phase["gate_fire_rate"] > 0.5
        assert phase["paths"]["fast"]["server"]["p50"] <= phase["paths"]["fast"]["client"]["p50"]
        assert phase["expected_ms"] > 0

    with httpx.Client(base_url=service.url, trust_env=False) as client:
        assert client.get("/v1/sessions").json()["data"] == [], "the run deletes its sessions"


def test_it_refuses_to_count_the_hits_of_standing_queries(service: PrivateService) -> None:
    body = {"session": "LOAD*", "question": "What is the trend?", "id": "mine"}
    with httpx.Client(base_url=service.url, trust_env=False) as client:
        assert client.post("/v1/standing-queries", json=body).status_code == 201
        done = loadgen(service, "--seconds", "1")
        assert client.delete("/v1/standing-queries/mine").status_code == 200
    assert done.returncode == 1
    assert "'mine'" in done.stderr


def test_it_says_when_the_service_reads_another_topic(service: PrivateService) -> None:
    done = loadgen(service, "--seconds", "1", "--topic", f"{service.topic}.other")
    assert done.returncode == 1
    assert "no topic" in done.stderr
