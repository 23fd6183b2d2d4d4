"""A run: sessions are filled and warmed up, then each rho is a phase of its own, with the service idle between."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import numpy as np

from loadgen.arrivals import Arrival, Schedule, schedule
from loadgen.client import HttpClient, Reply, precise_loop
from loadgen.counters import Counters
from loadgen.feeds import SimulatedFeed, UpdateFlow, send
from loadgen.results import Answered, PathTimes, Phase, summarise
from stream_engine.client.failure import Failure
from stream_engine.client.http import error_message, is_local, listed, request, session_path, unreachable
from stream_engine.config.kafka import KafkaSettings

READY_TIMEOUT_S = 20.0
APPLIED_TIMEOUT_S = 120.0
READY_WAIT_S = 5.0
"""For the pre-positions of idle sessions: they come at once, or the service runs without them."""
QUERY_TIMEOUT_S = 30.0
BASELINE_QUERIES = 48
WARM_CONNECTIONS = 4
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """What to put on the service. ``updates_per_second`` is of each session."""

    url: str
    kafka: KafkaSettings
    rhos: tuple[float, ...]
    seconds: float
    updates_per_second: float
    sessions: int
    seed: int
    questions: tuple[str, ...]
    """Wordings of one class, that which the generic header answers; each query takes one at random."""
    history_bars: int
    """Bars of each session before the first measurement: a whole region."""
    name: str
    """Sessions are called by this and a number; no other run may have used it on the same service."""


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    model: str
    baseline: dict[str, PathTimes]
    """Questions asked one by one on an idle service with ``path: full``."""
    phases: tuple[Phase, ...]


class _Answer(msgspec.Struct):
    """The part of an answer that is measured."""

    path: str
    latency_us: int
    model: str


_ANSWER = msgspec.json.Decoder(_Answer)


def run(load: Load, say: Callable[[str], None]) -> LoadOutcome:
    """Measure. ``say`` is told what is going on.

    Raises a Failure that says what is wrong and what to do, or what ``publish`` raises. The sessions of the run
    are deleted at its end."""
    schedules = [
        schedule(load.seed + number, rho, load.sessions, load.updates_per_second, load.seconds)
        for number, rho in enumerate(load.rhos)
    ]
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(
            httpx.Client(base_url=load.url, timeout=QUERY_TIMEOUT_S, trust_env=not is_local(load.url))
        )
        runner = _Runner(load, http, schedules)
        runner.check_service()
        stack.callback(runner.delete_sessions)
        say(f"publishing {load.history_bars} bars of history for each of {load.sessions} sessions")
        runner.fill()
        baseline, model = runner.baseline()
        phases = []
        for rho, planned in zip(load.rhos, schedules, strict=True):
            say(
                f"rho {rho:g}: {len(planned.updates)} updates and {len(planned.queries)} queries in "
                f"{planned.seconds:.0f} s"
            )
            phases.append(runner.phase(rho, planned, baseline))
    return LoadOutcome(model, baseline, tuple(phases))


class _Runner:
    def __init__(self, load: Load, http: httpx.Client, schedules: Sequence[Schedule]) -> None:
        self._load = load
        self._http = http
        self._names = [f"{load.name}-{number:02d}" for number in range(load.sessions)]
        self._paths = [f"{session_path(name)}/query" for name in self._names]
        updates = Counter(arrival.session for planned in schedules for arrival in planned.updates)
        bars = load.history_bars + len(schedules) + max(updates.values())
        self._feed = SimulatedFeed(self._names, bars, load.seed)
        self._rng = np.random.default_rng(load.seed)

    # --- before and after ---------------------------------------------------------------------------

    def check_service(self) -> None:
        """Raises a Failure where the service is not there, not ready, or where its hits would be counted on
        standing queries as well. A service that is not ready is given a while: a rebalance passes."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            try:
                ready = self._http.get("/health/ready")
            except httpx.HTTPError as error:
                raise Failure(unreachable(self._http, error)) from error
            if ready.status_code == 200:
                break
            if time.monotonic() > deadline:
                raise Failure(f"the service at {self._load.url} is not ready: {error_message(ready)}")
            time.sleep(0.2)
        for query in request(self._http, "GET", "/v1/standing-queries")["data"]:
            if query["session"].endswith("*") and self._load.name.startswith(query["session"].rstrip("*")):
                raise Failure(
                    f"the standing query {query['id']!r} on {query['session']!r} covers this run's sessions, and "
                    "its pre-positions would be counted too: delete it, or use --name"
                )

    def fill(self) -> None:
        """History for every session, as fast as the broker takes it; returns when all of it is applied."""
        send(
            self._load.kafka,
            (self._feed.next_bar(n) for _ in range(self._load.history_bars) for n in range(self._load.sessions)),
        )
        self._await_applied()

    def delete_sessions(self) -> None:
        with contextlib.suppress(httpx.HTTPError):
            for name in self._names:
                self._http.delete(session_path(name))

    def baseline(self) -> tuple[dict[str, PathTimes], str]:
        """Latencies of the full path, one question at a time; and the name of the model."""
        answered = []
        model = ""
        for number in range(BASELINE_QUERIES):
            body = {"question": self._question(), "path": "full"}
            started = time.monotonic()
            answer = request(self._http, "POST", self._paths[number % len(self._paths)], json=body)
            taken_ms = (time.monotonic() - started) * 1000
            answered.append(Answered(answer["path"], taken_ms, answer["latency_us"] / 1000, 0.0))
            model = answer["model"]
        return PathTimes.by_path(answered), model

    def _await_applied(self) -> None:
        """Until every session's newest bar is the last published one, and a while longer for its pre-position."""
        deadline = time.monotonic() + APPLIED_TIMEOUT_S
        while behind := self._behind("last_event_time", self._feed.newest()):
            if time.monotonic() > deadline:
                raise Failure(
                    f"{len(behind)} of {len(self._names)} sessions have not applied their last bar after "
                    f"{APPLIED_TIMEOUT_S:.0f} s: does the service consume {self._load.kafka.bars_topic} at "
                    f"{self._load.kafka.bootstrap_servers}? Its lag is in {self._load.url}/metrics"
                )
            time.sleep(POLL_S)
        deadline = time.monotonic() + READY_WAIT_S
        while self._behind("ready", dict.fromkeys(self._names, True)) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _question(self) -> str:
        return self._load.questions[int(self._rng.integers(len(self._load.questions)))]

    def _behind(self, field: str, wanted: dict[str, Any]) -> list[str]:
        held = {session["id"]: session[field] for session in listed(self._http, "/v1/sessions")}
        return [name for name in self._names if held.get(name) != wanted[name]]

    def _counters(self) -> Counters:
        try:
            return Counters.parse(self._http.get("/metrics").raise_for_status().text)
        except httpx.HTTPError as error:
            raise Failure(f"{self._load.url}/metrics: {error}") from error

    # --- a phase ------------------------------------------------------------------------------------

    def phase(self, rho: float, planned: Schedule, baseline: dict[str, PathTimes]) -> Phase:
        """One more bar a session, so that all begin on a pre-position that nobody has read; then the load; then
        all of it applied. Each session's last update ends its last pre-position, so that what the counters gained
        is of whole intervals of this phase."""
        send(self._load.kafka, (self._feed.next_bar(number) for number in range(self._load.sessions)))
        self._await_applied()
        before = self._counters()
        flow = UpdateFlow(self._load.kafka, self._feed, planned.updates)
        try:
            origin = flow.origin()
            with asyncio.Runner(loop_factory=precise_loop) as loop:
                answered, errors = loop.run(self._ask_all(origin, planned.queries))
            flow.finish()
        finally:
            flow.stop()
        self._await_applied()
        counted = self._counters().since(before)
        return summarise(rho, planned.seconds, len(planned.updates), answered, errors, counted, baseline)

    async def _ask_all(self, origin: float, queries: Sequence[Arrival]) -> tuple[list[Answered], Counter[str]]:
        """Every query when it is due, whether or not earlier ones were answered."""
        client = HttpClient(self._load.url)
        answered: list[Answered] = []
        errors: Counter[str] = Counter()
        with contextlib.suppress(OSError):
            await client.warm(WARM_CONNECTIONS)  # the first question says what is wrong

        async def ask(due: float, session: int, body: bytes) -> None:
            try:
                async with asyncio.timeout(QUERY_TIMEOUT_S):
                    reply = await client.post(self._paths[session], body)
            except TimeoutError:
                errors["timeout"] += 1
            except OSError as error:
                errors[type(error).__name__] += 1
            else:
                if reply.status == 200:
                    answered.append(_answered(due, reply))
                else:
                    errors[str(reply.status)] += 1

        async with asyncio.TaskGroup() as tasks:
            for arrival in queries:
                body = msgspec.json.encode({"question": self._question()})
                due = origin + arrival.at
                await asyncio.sleep(due - time.monotonic())
                tasks.create_task(ask(due, arrival.session, body))
        client.close()
        return answered, errors


def _answered(due: float, reply: Reply) -> Answered:
    answer = _ANSWER.decode(reply.body)
    return Answered(
        answer.path, (reply.received - due) * 1000, answer.latency_us / 1000, max(0.0, reply.sent - due) * 1000
    )
