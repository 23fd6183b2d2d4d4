"""What the demo does, step by step."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
from kafka.errors import KafkaError

from consumers.files.reader import FeedBar, sample_bars
from consumers.files.times import FeedError
from consumers.kafka.client import BrokerUnreachable
from consumers.kafka.publish import publish
from consumers.kafka.topics import open_admin, planned_topics
from stream_engine.cli.configured_model import configured_model
from stream_engine.cli.demo.asking import Asker
from stream_engine.cli.demo.report import Report
from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.failure import SETTINGS_WRONG, Failure
from stream_engine.client.http import listed, request
from stream_engine.client.metrics import value
from stream_engine.client.options import Options
from stream_engine.client.sse import EventFollower
from stream_engine.config.kafka import KafkaSettings
from stream_engine.model.profile import Profile

INSTRUMENTS = ("AAPL", "GOOG", "IBM", "MSFT")
READY_TIMEOUT_S = 180.0
APPLIED_TIMEOUT_S = 60.0
REMOVE_TIMEOUT_S = 5.0
PAIR_EVERY_S = 0.1
SHOW_EVERY_S = 3.0
OUTSIDE = "Who is the chief executive?"
"""A question that no model made for bars answers."""


def run(options: Options, bars: int, speed: float) -> None:
    """The whole demo: ``bars`` daily bars of each instrument, the newest ones at ``speed`` bars a second in all.

    Raises a Failure that says what is missing. Whatever happens, nothing is left running.
    """
    report = Report()
    config = options.load()
    try:
        profile = configured_model(config.engine).read_profile()
    except (OSError, ValueError) as error:
        raise Failure(f"engine.model = {config.engine.model!r}: {error}", SETTINGS_WRONG) from error
    try:
        series = _by_instrument(sample_bars(), bars)
    except FeedError as error:
        raise Failure(str(error)) from error
    report.opening(series)
    with contextlib.ExitStack() as stack:
        bootstrap, given = stack.enter_context(_broker(report))
        service = PrivateService(options, bootstrap)
        if given:
            stack.callback(_remove_topics, service.kafka)
        stack.enter_context(service)
        with report.waiting("starting the engine, the consumer and the API"):
            service.await_ready(READY_TIMEOUT_S)
        report.line(f"service ready: {service.url} (while this runs: {service.url}/docs)")
        client = stack.enter_context(httpx.Client(base_url=service.url, timeout=30.0, trust_env=False))
        follower = EventFollower(service.url, trust_env=False)
        stack.callback(follower.stop)
        _show(report, profile, series, service, client, follower, speed)
        with report.waiting("stopping"):
            stack.close()
    report.closing()


def _show(
    report: Report,
    profile: Profile,
    series: dict[str, list[FeedBar]],
    service: PrivateService,
    client: httpx.Client,
    follower: EventFollower,
    speed: float,
) -> None:
    generic = profile.generic_class.name
    standing = [("*", profile.questions[generic][0])]
    if "position" in profile.questions:
        standing.append((next(iter(series)), profile.questions["position"][0]))
    for pattern, question in standing:
        query = request(client, "POST", "/v1/standing-queries", json={"session": pattern, "question": question})
        report.line(f"standing query {query['id']} on {pattern}: {question}")

    history = min(profile.region_bars, len(next(iter(series.values()))) // 2)
    with report.waiting(f"publishing {history} bars of history each"):
        _publish(service, [bar for published in series.values() for bar in published[:history]])
        _await_bars(client, {name: published[history - 1] for name, published in series.items()})
        time.sleep(0.5)
    for _ in follower.drain():
        pass  # the history's answers: what follows is live
    fresh = _in_time_order([bar for published in series.values() for bar in published[history:]])
    report.flow(len(fresh), speed)
    asker = Asker(client)
    wordings = profile.questions[generic][1:]
    _ask_while_publishing(report, service, fresh, speed, follower, asker, list(series), wordings)
    _await_bars(client, {name: published[-1] for name, published in series.items()})
    time.sleep(0.5)
    report.changes(follower.drain())

    report.bars(listed(client, "/v1/sessions"))
    report.questions(
        [
            *(asker.ask(name, wording) for name, wording in zip(series, wordings[3::7], strict=False)),
            asker.ask(next(iter(series)), wordings[0], "full"),
            *(asker.ask(next(iter(series)), question) for _, question in standing[1:]),
            asker.ask(next(iter(series)), OUTSIDE),
        ]
    )
    metrics = client.get("/metrics").text
    names = ("slots", "hits", "wasted")
    slots, hits, wasted = (int(value(metrics, f"stream_engine_preposition_{name}_total") or 0) for name in names)
    report.measured(asker, slots, hits, wasted)


def _ask_while_publishing(
    report: Report,
    service: PrivateService,
    fresh: list[FeedBar],
    speed: float,
    follower: EventFollower,
    asker: Asker,
    sessions: list[str],
    wordings: tuple[str, ...],
) -> None:
    """Bars flow on a thread; here answers that change are shown as they come, and questions asked in between."""
    failed: list[BaseException] = []
    stop = threading.Event()

    def flow() -> None:
        try:
            _publish(service, itertools.takewhile(lambda _: not stop.is_set(), fresh), speed)
        except Exception as error:
            failed.append(error)

    publisher = threading.Thread(target=flow, name="publisher")
    publisher.start()
    try:
        turns = zip(itertools.cycle(sessions), itertools.cycle(wordings), strict=False)
        next_shown = time.monotonic() + SHOW_EVERY_S
        while publisher.is_alive():
            report.changes(follower.drain())
            usual, _ = asker.pair(*next(turns))
            if time.monotonic() >= next_shown:
                report.asked(usual)
                next_shown = time.monotonic() + SHOW_EVERY_S
            publisher.join(PAIR_EVERY_S)
    finally:
        stop.set()
        publisher.join()
    if failed:
        raise Failure(f"publishing ended early: {failed[0]}")


def _publish(service: PrivateService, bars: Any, speed: float = 0.0) -> None:
    publish(bars, service.kafka, service.topic, speed)


def _await_bars(client: httpx.Client, newest: dict[str, FeedBar]) -> None:
    """Until every session's last bar is the newest one published."""
    deadline = time.monotonic() + APPLIED_TIMEOUT_S
    wanted = {name: bar["ts"] for name, (_, bar) in newest.items()}
    while True:
        newest_held = {session["id"]: session["last_event_time"] for session in listed(client, "/v1/sessions")}
        if all(newest_held.get(name) == time_of_bar for name, time_of_bar in wanted.items()):
            return
        if time.monotonic() > deadline:
            raise Failure(f"not all bars were applied within {APPLIED_TIMEOUT_S:.0f} s")
        time.sleep(0.2)


def _by_instrument(sample: list[FeedBar], count: int) -> dict[str, list[FeedBar]]:
    """The last ``count`` bars of each instrument."""
    series: dict[str, list[FeedBar]] = defaultdict(list)
    for symbol, bar in sample:
        if symbol in INSTRUMENTS:
            series[symbol].append((symbol, bar))
    return {symbol: series[symbol][-count:] for symbol in INSTRUMENTS}


def _in_time_order(bars: list[FeedBar]) -> list[FeedBar]:
    return sorted(bars, key=lambda bar: str(bar[1]["ts"]))


@contextlib.contextmanager
def _broker(report: Report) -> Iterator[tuple[str, bool]]:
    """The address of a broker, and whether it was given: else one is started for the block."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        report.line(f"Kafka: {given} (KAFKA_BOOTSTRAP_SERVERS), a topic of its own")
        yield given, True
        return
    try:
        from stream_engine.localkafka import KAFKA_VERSION, LocalKafkaError, TemporaryKafka
    except ImportError as error:
        raise Failure(
            f"{error.name} is missing: pip install 'stream-engine[broker]', or name a broker in "
            "KAFKA_BOOTSTRAP_SERVERS"
        ) from error
    with contextlib.ExitStack() as stack:
        with report.waiting(f"starting Apache Kafka {KAFKA_VERSION} (the first time it is fetched)"):
            try:
                broker = stack.enter_context(TemporaryKafka())
            except LocalKafkaError as error:
                raise Failure(str(error)) from error
        report.line(f"Kafka {KAFKA_VERSION} ready: {broker.bootstrap}")
        yield broker.bootstrap, False


def _remove_topics(settings: KafkaSettings) -> None:
    """Take the demo's own topics off a broker that stays."""
    with contextlib.suppress(KafkaError, BrokerUnreachable):
        admin = open_admin(settings, REMOVE_TIMEOUT_S)
        try:
            existing = set(admin.list_topics())
            admin.delete_topics([plan.name for plan in planned_topics(settings) if plan.name in existing])
        finally:
            admin.close()
