"""Trades through the real broker: bars in sessions, restarts, late and doubly fed keys."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import Bar
from stream_engine.session.region import Region, StoredBar

START_S = 1_700_000_040


def trades(count: int, seed: int) -> list[tuple[str, Any]]:
    chance = random.Random(seed)
    clock, price = {"BTC": 0.0, "ETH": 0.0}, {"BTC": 100.0, "ETH": 30.0}
    made: list[tuple[str, Any]] = []
    for _ in range(count):
        key = chance.choice(("BTC", "BTC", "BTC", "ETH"))
        clock[key] += chance.expovariate(1 / 20)
        price[key] += chance.gauss(0, 0.3)
        made.append((key, {"t": START_S + clock[key], "p": price[key], "q": chance.random()}))
    return made


def expected(made: list[tuple[str, Any]], key: str) -> list[tuple[int, float, float, float, float]]:
    bars: dict[int, list[float]] = {}
    for name, trade in made:
        if name == key:
            bars.setdefault(int(trade["t"] // 60) * 60_000_000, []).append(trade["p"])
    return [(start, p[0], max(p), min(p), p[-1]) for start, p in bars.items()]


def bars_of(pipeline: Any, key: str) -> list[tuple[int, float, float, float, float]]:
    stored = pipeline.engine.sessions[key].region.bars
    return [(bar.bar.time_us, bar.bar.open, bar.bar.high, bar.bar.low, bar.bar.close) for bar in stored]


@pytest.mark.parametrize("open_bar", [False, True])
def test_restarts_of_both_sides_give_the_bars_of_an_uninterrupted_run(
    make_pipeline: Callable[..., Any], open_bar: bool
) -> None:
    pipeline = make_pipeline({"quiet_records": 300}, open_bar=open_bar)
    topic = pipeline.kafka.trades_topic
    made = trades(900, seed=1)
    pipeline.start_engine()
    pipeline.start_consumer()
    for start, end, restart in ((0, 250, "engine"), (250, 600, "consumer"), (600, 900, "engine")):
        pipeline.put(topic, made[start:end])
        floor = pipeline.until_committed(topic, end)
        assert floor < end  # the open bars' first trades
        pipeline.stop(restart)
        (pipeline.start_engine if restart == "engine" else pipeline.start_consumer)()
    late = ("BTC", {"t": START_S, "p": 1.0})
    end = pipeline.put(topic, [late])
    pipeline.until_committed(topic, end)
    for key in ("BTC", "ETH"):
        wanted = expected(made, key) if open_bar else expected(made, key)[:-1]
        found = bars_of(pipeline, key)
        assert found == wanted[-len(found) :]
        assert len(found) > 30
        uninterrupted = Region(key, pipeline.engine.builder)
        for n, (start, *prices) in enumerate(wanted):
            volume = sum(
                trade["q"] for name, trade in made if name == key and trade["t"] // 60 * 60_000_000 == start
            )
            uninterrupted.extend([StoredBar(Bar(start, *prices, volume), n, n)])
        assert pipeline.engine.sessions[key].tokens[-len(uninterrupted.tokens()) :] == uninterrupted.tokens()
    assert set(pipeline.dead_letters(topic)) == {(900, "late")}
    counts = pipeline.counts(topic, 301)
    assert (counts.consumed, counts.late, counts.dead_lettered) == (301, 1, 0)
    assert counts.consumed == counts.applied + counts.duplicates + counts.late


@pytest.mark.parametrize("open_bar", [False, True])
def test_a_key_fed_by_bars_and_trades_keeps_its_first_source(
    make_pipeline: Callable[..., Any], open_bar: bool
) -> None:
    pipeline = make_pipeline(open_bar=open_bar)
    bars, trades_ = pipeline.kafka.source_topics
    pipeline.start_engine()
    pipeline.start_consumer()
    bar = {"t": START_S, "o": 1, "h": 1, "l": 1, "c": 1}
    pipeline.until_committed(bars, pipeline.put(bars, [("BTC", bar)]))
    made = trades(30, seed=2)
    pipeline.until_committed(trades_, pipeline.put(trades_, made))
    doubled = [offset for offset, (key, _) in enumerate(made) if key == "BTC"]
    assert sorted(pipeline.dead_letters(trades_)) == [(offset, "second_source") for offset in doubled]
    counts = pipeline.counts(trades_, 30)
    assert (counts.dead_lettered, counts.applied) == (len(doubled), 30 - len(doubled))
    assert len(pipeline.engine.sessions["BTC"].region) == 1
