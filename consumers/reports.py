"""What a consumer tells of itself: to the engine and in its health file every second, in the log now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from consumers.engine_watch import Presence
from consumers.health import HealthFile
from consumers.metrics import ConsumerMetrics
from stream_engine.messages import ConsumerReport

log = logging.getLogger(__name__)

REPORT_EVERY_S, LOG_EVERY_S = 1.0, 30.0


class Reports:
    """Times are in seconds of the monotonic clock."""

    def __init__(self, metrics: ConsumerMetrics, health: HealthFile | None = None) -> None:
        self.metrics = metrics
        self._health = health
        self._kafka_silent = False
        self._next_report = 0.0
        self._next_log = time.monotonic() + LOG_EVERY_S

    def due(self, now: float) -> bool:
        return now >= self._next_report

    def hasten(self, now: float) -> None:
        """The next one is due at once."""
        self._next_report = now

    def make(
        self, kafka_silent_since: float | None, sizes: Mapping[str, int], stopped: Mapping[str, str]
    ) -> ConsumerReport:
        """The counters as they are, with what the source says: since when Kafka has not answered, how many
        partitions its topics have, and which ones are stopped."""
        silent = self._silent_since_ms(kafka_silent_since)
        counters, counts = self.metrics.counters(), self.metrics.counts()
        return ConsumerReport(
            lag=self.metrics.lag,
            counters=counters,
            records=counts,
            kafka_silent_since_ms=silent,
            partitions=dict(sizes),
            stopped=dict(stopped),
        )

    def keep(self, report: ConsumerReport, presence: Presence, now: float) -> None:
        """In the health file, and in the log where it is time."""
        self._next_report = now + REPORT_EVERY_S
        if self._health is not None:
            at_ms = time.time_ns() // 1_000_000
            self._health.write(at_ms, presence.value, report.kafka_silent_since_ms, report.stopped)
        if now >= self._next_log:
            self._next_log = now + LOG_EVERY_S
            log.info("%s", self.metrics.as_dict())

    def close(self) -> None:
        """After a clean end there is no health file."""
        if self._health is not None:
            self._health.remove()

    def _silent_since_ms(self, since: float | None) -> int | None:
        if (since is None) is self._kafka_silent:
            self._kafka_silent = since is not None
            log.warning("Kafka does not answer: still trying" if since is not None else "Kafka answers again")
        return None if since is None else int((time.time() - time.monotonic() + since) * 1000)
