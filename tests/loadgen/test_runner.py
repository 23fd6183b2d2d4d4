"""What a run asks, and from when it counts: against a real HTTP server, with times planted in the replies."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from loadgen import runner
from loadgen.arrivals import Arrival, schedule
from loadgen.client import Reply, precise_loop
from loadgen.results import Answered
from loadgen.runner import Load
from stream_engine.client.failure import Failure
from stream_engine.config.kafka import KafkaSettings

WORDINGS = ("What is the trend?", "Which way is it going?", "Up or down?")
LOAD = Load(
    url="",
    kafka=KafkaSettings(),
    rhos=(1.0,),
    seconds=5.0,
    updates_per_second=1.0,
    sessions=3,
    seed=7,
    questions=WORDINGS,
    history_bars=4,
    name="LOAD",
)


class Service(ThreadingHTTPServer):
    """Keeps what it was asked. A question without a path is answered as ``auto`` is: fast."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.standing: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        self._reply({"data": self.server.standing})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        path = "cold" if body.get("path") == "full" else "fast"
        self._reply({"path": path, "latency_us": 40_000 if path == "cold" else 500, "model": "played"})

    def _reply(self, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing on the tests' output."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def run(service: Service) -> Iterator[runner._Runner]:
    load = replace(LOAD, url=service.url)
    with httpx.Client(base_url=service.url, trust_env=False) as http:
        yield runner._Runner(load, http, [schedule(7, 1.0, 3, 1.0, 5.0)])


def test_the_baseline_is_of_the_full_path(run: runner._Runner, service: Service) -> None:
    """An idle service would answer from what is ready, and the fast path would be compared with itself."""
    baseline, model = run.baseline()
    assert len(service.asked) == 48
    assert {body["path"] for _, body in service.asked} == {"full"}
    assert Counter(path for path, _ in service.asked) == {
        f"/v1/sessions/LOAD-{number:02d}/query": 16 for number in range(3)
    }
    assert {body["question"] for _, body in service.asked} == set(WORDINGS)
    assert (model, {path: times.count for path, times in baseline.items()}) == (
        "played",
        {"cold": 48},
    )
    assert baseline["cold"].server.p50 == 40.0


def ask_all(run: runner._Runner, origin: float, *queries: Arrival) -> tuple[list[Answered], Counter[str]]:
    with asyncio.Runner(loop_factory=precise_loop) as loop:
        return loop.run(run._ask_all(origin, queries))


def test_the_queries_of_a_phase_leave_the_path_to_the_service(run: runner._Runner, service: Service) -> None:
    answered, errors = ask_all(run, time.monotonic(), *(Arrival(0.0, number % 3) for number in range(30)))
    assert (len(answered), errors) == (30, {})
    assert {answer.path for answer in answered} == {"fast"}
    assert {answer.server_ms for answer in answered} == {0.5}
    assert all(body.keys() == {"question"} for _, body in service.asked)
    assert {body["question"] for _, body in service.asked} == set(WORDINGS)
    assert Counter(path for path, _ in service.asked)["/v1/sessions/LOAD-02/query"] == 10


class Scripted:
    """In place of the client: a request is sent and answered so long after time zero as its session says."""

    TIMES = ((7.5, 8.0), (2.0, 2.25), (4.0, 4.5))
    origin = 0.0

    def __init__(self, url: str) -> None:
        self.url = url

    async def warm(self, connections: int) -> None:
        pass

    async def post(self, path: str, body: bytes) -> Reply:
        session = int(path.removesuffix("/query")[-2:])
        sent, received = self.TIMES[session]
        answer = b'{"path": "cold", "latency_us": 125, "model": "m"}'
        return Reply(200, answer, self.origin + sent, self.origin + received)

    def close(self) -> None:
        pass


def test_latency_counts_from_when_a_query_was_due(run: runner._Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stall shows in every query that was due meanwhile, however late it was sent."""
    Scripted.origin = time.monotonic() - 1_000  # all are overdue: nothing waits
    monkeypatch.setattr(runner, "HttpClient", Scripted)
    due = (Arrival(2.0, 0), Arrival(2.0, 1), Arrival(4.25, 2))
    answered, errors = ask_all(run, Scripted.origin, *due)
    assert not errors
    assert [(answer.client_ms, answer.late_ms, answer.server_ms, answer.path) for answer in answered] == [
        (pytest.approx(6_000), pytest.approx(5_500), 0.125, "cold"),  # 5.5 s late, then half a second
        (pytest.approx(250), pytest.approx(0), 0.125, "cold"),
        (pytest.approx(250), 0.0, 0.125, "cold"),  # sent too early is not late
    ]


def test_a_query_without_an_answer_is_counted_by_what_came_instead(
    run: runner._Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Scripted):
        async def post(self, path: str, body: bytes) -> Reply:
            if "-00" in path:
                raise ConnectionResetError
            if "-01" in path:
                raise TimeoutError
            return Reply(503, b"{}", 0.0, 0.0)

    monkeypatch.setattr(runner, "HttpClient", Failing)
    answered, errors = ask_all(run, time.monotonic(), Arrival(0.0, 0), Arrival(0.0, 1), Arrival(0.0, 2))
    assert answered == []
    assert errors == {"ConnectionResetError": 1, "timeout": 1, "503": 1}


@pytest.mark.parametrize(("pattern", "refused"), [("LO*", True), ("*", True), ("OTHER*", False), ("LOAD", False)])
def test_standing_queries_on_its_sessions_would_be_counted_too(
    run: runner._Runner, service: Service, pattern: str, refused: bool
) -> None:
    service.standing = [{"id": "mine", "session": pattern}]
    if refused:
        with pytest.raises(Failure, match="'mine'"):
            run.check_service()
    else:
        run.check_service()
