"""Sessions that sleep, through the real broker: awake and restarted they are those of a life without sleep."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from consumers.kafka.source import SourcePartition
from consumers.writers.window_lookup import WindowLookup
from consumers.writers.windows import read_windows, window_key
from stream_engine.messages import Answer, ErrorReply, Query, Sleeper
from stream_engine.messages.transport import EngineLink
from stream_engine.util.skipped import Skipped
from tests.support.checks import TREND
from tests.support.pipeline import PATIENCE_S, Pipeline

START_S = 1_700_000_000
AFTER_S = 0.3
SKIPPED = Skipped(logging.getLogger(__name__))
KEYS = tuple(f"K{n}" for n in range(8))


def bars(keys: str | tuple[str, ...], first: int, count: int) -> list[tuple[str, Any]]:
    """So many bars of each."""
    chance = random.Random(first)
    made: list[tuple[str, Any]] = []
    for at in range(first, first + count):
        for key in (keys,) if isinstance(keys, str) else keys:
            price = round(100 + chance.gauss(0, 1), 2)
            bar = {"t": START_S + 60 * at, "o": price, "h": price + 1, "l": price - 1, "c": price, "v": 5}
            made.append((key, bar))
    return made


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def dormant(pipeline: Pipeline) -> dict[str, int]:
    """Versions of the sleepers."""
    owned = pipeline.engine.ingest.partitions.all()
    return {name: row.version for part in owned for name, row in dict(part.dormant).items()}


def asleep(pipeline: Pipeline, *keys: str) -> None:
    until(lambda: dormant(pipeline).keys() == set(keys), f"{keys} asleep")


def ask(pipeline: Pipeline, session: str) -> Answer | ErrorReply:
    link = EngineLink(pipeline.config.transport)
    link.send(Query(session, TREND))
    replies = link.drain(int(PATIENCE_S * 1000))
    link.close()
    (reply,) = replies
    assert isinstance(reply, Answer | ErrorReply)
    return reply


def start(pipeline: Pipeline, sleep_after_s: float) -> None:
    pipeline.config = replace(pipeline.config, engine=replace(pipeline.config.engine, sleep_after_s=sleep_after_s))
    pipeline.start_engine()
    pipeline.start_consumer()


def stop(pipeline: Pipeline) -> None:
    pipeline.stop("consumer")
    pipeline.stop("engine")


def log_of(pipeline: Pipeline, key: str) -> Any:
    session = pipeline.engine.sessions[key]
    return session.tokens, session.version, session.swaps, session.timestamp_ms > 0


def test_they_sleep_and_wake_with_records_and_questions_over_restarts(make_pipeline: Callable[..., Any]) -> None:
    straight, here = make_pipeline({"quiet_records": 100}), make_pipeline({"quiet_records": 100})
    topic = here.kafka.bars_topic
    start(straight, 0)
    start(here, AFTER_S)
    first, second = bars(KEYS, 0, 50), bars(KEYS[:3], 50, 40)
    straight.put(straight.kafka.bars_topic, first + second)
    straight.until_committed(straight.kafka.bars_topic, len(first + second))
    here.put(topic, first)
    here.until_committed(topic, len(first))
    asleep(here, *KEYS)
    assert not here.engine.sessions

    end = here.put(topic, second)
    floor = here.until_committed(topic, end)
    assert floor >= len(first), "no sleeper holds the floor back"
    counts = here.counts(topic, end)
    assert (counts.applied, counts.duplicates, counts.dead_lettered) == (end, 0, 0)
    asleep(here, *KEYS)
    assert here.engine.counters.sessions_woken_total >= 3

    stop(here)
    start(here, 0)  # nobody falls asleep here, and those that sleep go on
    until(lambda: here.status().ready, "ready")
    asleep(here, *KEYS)
    assert not here.engine.sessions, "a restart wakes nobody"
    assert here.engine.counters.replayed_total == 0
    for key in KEYS:
        version = dormant(here)[key]
        answer = ask(here, key)
        assert isinstance(answer, Answer), answer
        assert answer.session_version == version
        assert log_of(here, key) == log_of(straight, key)
    assert not dormant(here)
    stop(here)
    start(here, 0)
    until(lambda: here.status().ready, "ready")
    assert dormant(here).keys() == set(KEYS), "as of the windows that they have slept on"


def test_one_that_died_awake_is_refilled_from_the_window_it_slept_on(make_pipeline: Callable[..., Any]) -> None:
    straight, here = make_pipeline(), make_pipeline()
    topic = here.kafka.bars_topic
    records = bars("A", 0, 40)
    for pipeline, after_s in ((straight, 0.0), (here, AFTER_S)):
        start(pipeline, after_s)
        pipeline.put(pipeline.kafka.bars_topic, records)
        pipeline.until_committed(pipeline.kafka.bars_topic, 40)
    asleep(here, "A")
    stop(here)
    start(here, 0)
    for pipeline in (straight, here):
        pipeline.put(pipeline.kafka.bars_topic, bars("A", 40, 10))
        pipeline.until_committed(pipeline.kafka.bars_topic, 50)
    (sleeper,) = read_windows(here.kafka, SourcePartition(topic, 0), SKIPPED).sleepers
    assert sleeper.offset == 39, "no newer window is written"
    stop(here)
    start(here, 0)
    for pipeline in (straight, here):
        pipeline.put(pipeline.kafka.bars_topic, bars("A", 50, 1))
        pipeline.until_committed(pipeline.kafka.bars_topic, 51)
    assert log_of(here, "A") == log_of(straight, "A")
    assert here.engine.counters.replayed_total == 10
    assert not here.engine.sessions["A"].incomplete


def test_sessions_of_a_partition_of_which_nothing_comes_any_more_fall_asleep_after_a_restart(
    make_pipeline: Callable[..., Any],
) -> None:
    here = make_pipeline()
    topic = here.kafka.bars_topic
    start(here, 0)
    here.put(topic, bars(KEYS, 0, 3))
    here.until_committed(topic, 24)
    stop(here)
    start(here, AFTER_S)
    asleep(here, *KEYS)
    assert dormant(here) == {key: 17 + number for number, key in enumerate(KEYS)}


def test_a_deleted_sleeper_does_not_come_back(make_pipeline: Callable[..., Any]) -> None:
    here = make_pipeline()
    topic = here.kafka.bars_topic
    start(here, AFTER_S)
    here.put(topic, bars(("A", "B"), 0, 5))
    here.until_committed(topic, 10)
    asleep(here, "A", "B")
    assert here.engine.drop_sleeper("A")
    here.put(topic, bars("B", 5, 1))
    here.until_committed(topic, 11)
    stop(here)
    start(here, AFTER_S)
    until(lambda: here.status().ready, "ready")
    asleep(here, "B")
    refused = ask(here, "A")
    assert isinstance(refused, ErrorReply)
    assert refused.status == 404


def test_single_windows_are_found_where_they_lie_now(make_pipeline: Callable[..., Any]) -> None:
    here = make_pipeline()
    topic = here.kafka.bars_topic
    start(here, AFTER_S)
    here.put(topic, bars(KEYS, 0, 3))
    here.until_committed(topic, 24)
    asleep(here, *KEYS)
    stop(here)
    source = SourcePartition(topic, 0)
    known = {sleeper.session: sleeper for sleeper in read_windows(here.kafka, source, SKIPPED).sleepers}
    written = {record.offset: record.value for record in here.read(here.kafka.windows_topic)}

    def key(name: str) -> str:
        return window_key(topic, name).decode()

    more: list[tuple[str, Any]] = [(key("K1"), written[known["K1"].at]), (key("K3"), b"no window of ours")]
    end = here.put(here.kafka.windows_topic, more)
    here.producer.send(here.kafka.windows_topic, key=key("K2").encode(), value=None, partition=0).get(PATIENCE_S)
    wanted = [
        known["K0"],
        Sleeper("K1", known["K1"].offset, known["K1"].at),
        replace_at(known["K2"], end),  # a deletion
        replace_at(known["K3"], end - 1),  # unreadable
        replace_at(known["K4"], 0 if known["K4"].at else 1),  # it is further on
        replace_at(known["K5"], end + 1_000),  # the topic ends before
        Sleeper("K9", 5, 3),  # another's message lies there, and no other is of it
    ]
    skipped = Skipped(logging.getLogger(__name__))
    lookup = WindowLookup(here.kafka, skipped)
    lookup.want(source, 7, wanted)
    found: list[Any] = []
    until(lambda: bool(found.extend(lookup.found()) or found), "found")
    lookup.close()
    ((of, generation, windows),) = found
    assert (of, generation) == (source, 7)
    bars_of = {window.session: len(window.bars) for window in windows}
    assert bars_of == {"K0": 3, "K1": 3, "K2": 0, "K3": 0, "K4": 3, "K5": 0, "K9": 0}
    assert skipped.counts.keys() == {"window_unreadable"}


def replace_at(sleeper: Sleeper, at: int) -> Sleeper:
    return Sleeper(sleeper.session, sleeper.offset, at)


def test_sessions_of_trades_stay_awake(make_pipeline: Callable[..., Any]) -> None:
    here = make_pipeline()
    topic = here.kafka.trades_topic
    start(here, AFTER_S)
    trades = [("T", {"t": START_S + 20 * n, "p": 100.0 + n, "size": 1}) for n in range(30)]
    end = here.put(topic, trades)
    here.until_committed(topic, end)
    here.put(here.kafka.bars_topic, bars("A", 0, 5))
    asleep(here, "A")
    time.sleep(2 * AFTER_S)  # nothing tells that somebody does not fall asleep
    assert set(here.engine.sessions) == {"T"}
