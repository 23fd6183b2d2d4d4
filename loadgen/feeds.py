"""Simulated bars, one series a session, published when they are due."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from consumers.files.reader import FeedBar
from consumers.kafka.publish import publish
from loadgen.arrivals import Arrival
from stream_engine.config.kafka import KafkaSettings
from stream_engine.data.simulate import simulate
from stream_engine.util.timestamps import rfc3339

LEAD_S = 0.2
"""From the connection to the broker to time zero of a run: the queries' side learns of it meanwhile."""


class SimulatedFeed:
    """The next bar of each session. ``bars`` is how many of each there are."""

    def __init__(self, names: Sequence[str], bars: int, seed: int) -> None:
        self.names = names
        drawn = simulate(np.random.default_rng(seed), len(names), bars)
        self._series = [drawn.series(row) for row in range(len(names))]
        self._next = [0] * len(names)

    def next_bar(self, session: int) -> FeedBar:
        series, index = self._series[session], self._next[session]
        self._next[session] += 1
        bar: dict[str, Any] = {"symbol": self.names[session], "ts": rfc3339(int(series.time_us[index]))}
        for name in ("open", "high", "low", "close", "volume"):
            value = float(getattr(series, name)[index])
            bar[name] = value if math.isfinite(value) else None
        return self.names[session], bar

    def newest(self) -> dict[str, str]:
        """Time of the last bar taken, by session name; sessions without one are left out."""
        return {
            name: rfc3339(int(series.time_us[count - 1]))
            for name, series, count in zip(self.names, self._series, self._next, strict=True)
            if count
        }


class UpdateFlow:
    """Publishes ``updates`` on a thread of its own, each when it is due. ``origin`` is time zero of the run, on
    the monotonic clock, once the broker takes records."""

    def __init__(self, kafka: KafkaSettings, feed: SimulatedFeed, updates: Sequence[Arrival]) -> None:
        self._kafka = kafka
        self._feed = feed
        self._updates = updates
        self._begun = threading.Event()
        self._stopped = threading.Event()
        self._origin = math.nan
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="updates", daemon=True)
        self._thread.start()

    def origin(self) -> float:
        """Waits for time zero. Raises what kept the broker from taking records."""
        self._begun.wait()
        if self._failure is not None:
            raise self._failure
        return self._origin

    def finish(self) -> None:
        """Waits until every update is confirmed. Raises what went wrong."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ends early; what was sent is flushed."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            send(self._kafka, self._paced())
        except Exception as error:  # raised again on the thread that waits for this one
            self._failure = error
        self._begun.set()

    def _paced(self) -> Iterator[FeedBar]:
        self._origin = time.monotonic() + LEAD_S
        self._begun.set()
        for arrival in self._updates:
            if self._stopped.wait(max(0.0, self._origin + arrival.at - time.monotonic())):
                return
            yield self._feed.next_bar(arrival.session)


def send(kafka: KafkaSettings, bars: Iterable[FeedBar]) -> None:
    """Publish, and wait until all is confirmed. Raises as ``consumers.kafka.publish.publish`` does."""
    publish(bars, kafka, kafka.bars_topic)
