"""Bars of a run: whose, in which order, and published when they are due, on a clock that goes on by waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen import feeds
from loadgen.arrivals import Arrival
from loadgen.feeds import SimulatedFeed, UpdateFlow
from stream_engine.config.kafka import KafkaSettings

START = 5_000.0
NAMES = ("A", "B")


class World:
    """Time, and what was published when."""

    def __init__(self) -> None:
        self.now = START
        self.sent: list[tuple[float, str, dict[str, Any]]] = []
        self.failure: Exception | None = None
        self.takes_s = 0.0

    def event(self) -> threading.Event:
        world = self

        class Event(threading.Event):
            """A wait with an end takes its whole time at once, if nothing ends it."""

            def wait(self, timeout: float | None = None) -> bool:
                if timeout is None:
                    return super().wait()
                assert timeout >= 0
                if not self.is_set():
                    world.now += timeout
                return self.is_set()

        return Event()

    def send(self, kafka: KafkaSettings, bars: Iterable[tuple[str, dict[str, Any]]]) -> None:
        if self.failure is not None:
            raise self.failure
        for name, bar in bars:
            self.sent.append((self.now, name, bar))
            self.now += self.takes_s


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(feeds, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(feeds, "threading", SimpleNamespace(Event=made.event, Thread=threading.Thread))
    monkeypatch.setattr(feeds, "send", made.send)
    return made


@pytest.fixture
def feed() -> SimulatedFeed:
    return SimulatedFeed(NAMES, 5, 3)


UPDATES = (Arrival(0.5, 1), Arrival(1.0, 0), Arrival(3.25, 1))


def test_each_update_is_published_when_it_is_due(world: World, feed: SimulatedFeed) -> None:
    flow = UpdateFlow(KafkaSettings(), feed, UPDATES)
    origin = flow.origin()
    flow.finish()
    assert origin == START + 0.2, "the side that asks learns of it before the first one"
    assert [(at - origin, name) for at, name, _ in world.sent] == [
        (pytest.approx(0.5), "B"),
        (pytest.approx(1.0), "A"),
        (pytest.approx(3.25), "B"),
    ]


def test_a_slow_broker_makes_an_update_late_and_not_those_after_it(world: World, feed: SimulatedFeed) -> None:
    world.takes_s = 0.75
    flow = UpdateFlow(KafkaSettings(), feed, UPDATES)
    origin = flow.origin()
    flow.finish()
    assert [at - origin for at, _, _ in world.sent] == pytest.approx([0.5, 1.25, 3.25])


def test_what_keeps_the_broker_from_taking_records_is_raised_on_the_other_side(
    world: World, feed: SimulatedFeed
) -> None:
    world.failure = RuntimeError("no broker")
    flow = UpdateFlow(KafkaSettings(), feed, UPDATES)
    for wait in (flow.origin, flow.finish):
        with pytest.raises(RuntimeError, match="no broker"):
            wait()
    flow.stop()


def test_a_session_s_bars_follow_one_another_and_are_its_own(feed: SimulatedFeed) -> None:
    assert feed.newest() == {}
    bars = [feed.next_bar(session) for session in (0, 1, 0, 0, 1)]
    assert [name for name, _ in bars] == ["A", "B", "A", "A", "B"]
    assert all(bar["symbol"] == name for name, bar in bars)
    times = {name: [bar["ts"] for of, bar in bars if of == name] for name in NAMES}
    for own in times.values():
        assert own == sorted(set(own))
        assert all(time.endswith("Z") for time in own)
    assert feed.newest() == {name: own[-1] for name, own in times.items()}
    assert bars[0][1]["close"] != bars[1][1]["close"], "each has a series of its own"


def test_a_seed_draws_the_same_bars_again(feed: SimulatedFeed) -> None:
    again, other = SimulatedFeed(NAMES, 5, 3), SimulatedFeed(NAMES, 5, 4)
    drawn = [[drawn_from.next_bar(0) for _ in range(5)] for drawn_from in (feed, again, other)]
    assert drawn[0] == drawn[1] != drawn[2]
