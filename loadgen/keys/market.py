"""An engine that holds many keys, in this process, and single operations on it: timed, and counted in what they
looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from stream_engine.config.engine import EngineSettings
from stream_engine.engine.engine import Engine
from stream_engine.messages import Assign, Bar, Batch, ErrorReply, Record, StandingPut
from stream_engine.process.build import build_engine
from stream_engine.session.session import Source

TOPIC = "market.bars"
QUESTION = "What is the trend?"
BATCH = 500
MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one operation, over its repeats: the median in milliseconds, and the most that one of them looked at."""

    ms: float
    looked: int


class Market:
    """Keys ``K0000000`` and so on of one partition, each fed one bar at a time."""

    def __init__(self, kv_memory: str) -> None:
        settings = EngineSettings(kv_memory=kv_memory, preposition="off", check_integrity=False)
        self.engine: Engine = build_engine(settings)
        self._next = 0
        self.engine.assign(Assign(topic=TOPIC, partition=0, generation=1, start=0, live_from=0))

    def grow(self, keys: int) -> None:
        """Until as many keys are live."""
        while (have := len(self.engine.sessions)) < keys:
            self.offer([name(number) for number in range(have, min(have + BATCH, keys))])
            self.engine.run_until_idle()
            self.engine.ingest.settle()

    def offer(self, keys: list[str]) -> None:
        """A bar for each; nothing of it is applied yet."""
        first = self._next
        records = tuple(Record(key, first + at, 0, (_bar(first + at),)) for at, key in enumerate(keys))
        self._next += len(keys)
        self.engine.ingest.take(
            Batch(
                topic=TOPIC,
                partition=0,
                generation=1,
                follows=first - 1,
                last=self._next - 1,
                consumed=len(keys),
                records=records,
            )
        )

    def commit(self, repeats: int) -> Cost:
        """One bar of one key, until it is acknowledged."""
        owned = self.engine.ingest.partitions.get(Source(TOPIC, 0))
        assert owned is not None

        def once() -> None:
            self.offer([name(0)])
            self.engine.step()
            self.engine.ingest.settle()

        return _cost(once, lambda: owned.floors.looked, repeats)

    def register(self, queries: int) -> None:
        """As many standing queries, each of one key."""
        keys = len(self.engine.sessions)
        for number in range(self.engine.standing.count, queries):
            self._put(name(number % keys), f"q{number}")
        self.engine.run_until_idle()

    def delete(self, repeats: int) -> Cost:
        """One standing query goes; it comes again unmeasured."""
        query = self.engine.standing.get("q0")
        assert query is not None

        def again() -> None:
            self._put(query.session, "q0")
            self.engine.run_until_idle()

        def looked() -> int:
            return self.engine.registration.looked + self.engine.standing.looked

        return _cost(lambda: self.engine.unregister("q0"), looked, repeats, again)

    def waiting_step(self, records: int) -> Cost:
        """The longest step, which a signal to end waits for, while as many records wait."""
        for first in range(0, records, BATCH):
            self.offer([name(number) for number in range(first, min(first + BATCH, records))])
        waits, taken = [], 0
        while before := len(self.engine.scheduler.commits):
            started = time.perf_counter()
            self.engine.step()
            waits.append((time.perf_counter() - started) * 1000)
            taken = max(taken, before - len(self.engine.scheduler.commits))
        self.engine.run_until_idle()
        self.engine.ingest.settle()
        return Cost(max(waits), taken)

    def _put(self, pattern: str, query_id: str) -> None:
        answered = self.engine.register(StandingPut(pattern, QUESTION, id=query_id))
        if isinstance(answered, ErrorReply):
            raise ValueError(answered.message)


def name(number: int) -> str:
    return f"K{number:07}"


def _bar(number: int) -> Bar:
    close = 100 + (number * 7 % 11) * 0.5
    return Bar(time_us=number * MINUTE_US, open=close, high=close + 0.5, low=close - 0.5, close=close, volume=10.0)


def _cost(
    run: Callable[[], object], looked: Callable[[], int], repeats: int, between: Callable[[], None] | None = None
) -> Cost:
    times, most = [], 0
    for _ in range(repeats):
        before, started = looked(), time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1000)
        most = max(most, looked() - before)
        if between is not None:
            between()
    return Cost(median(times), most)
