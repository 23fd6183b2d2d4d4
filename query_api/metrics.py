"""Prometheus metrics of this API, and the engine's own counters beside them.

With several workers the values live in files of the folder ``PROMETHEUS_MULTIPROC_DIR``, which the server sets
before it starts them, and every worker reports the sum.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from stream_engine.messages import CalibrationReport, Status
from stream_engine.messages.metric_help import ENGINE_COUNTERS, ENGINE_GAUGES, consumer_counter_help

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"

ANSWER_BUCKETS_S = (
    0.00005, 0.0001, 0.0002, 0.00035, 0.0005, 0.00075, 0.001, 0.002, 0.005,
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""A fast answer takes a tenth of a millisecond, so the default buckets would hold all of them in one."""


class ApiMetrics:
    """The metrics of one application."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "query_api_requests",
            "HTTP requests by method, route and status",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "query_api_request_seconds",
            "Time of a request in this process, from its head to its last byte",
            ("route",),
            buckets=ANSWER_BUCKETS_S,
            registry=self._registry,
        )
        self._fast_path = Counter(
            "query_api_fast_path",
            "Queries that tried the ready board, by what came of it",
            ("outcome",),
            registry=self._registry,
        )
        self._routed = Counter(
            "query_api_questions_routed",
            "Questions by how they came to what answers them: exact, listed, classifier, none, or refused",
            ("by",),
            registry=self._registry,
        )
        self._answer_seconds = Histogram(
            "query_api_answer_seconds",
            "Time from receiving a query to its answer, by the path that the answer took",
            ("path",),
            buckets=ANSWER_BUCKETS_S,
            registry=self._registry,
        )
        self._checks = Counter(
            "query_api_checks",
            "Fast answers picked for a check, by whether the engine took them",
            ("outcome",),
            registry=self._registry,
        )
        self._subscribers = Gauge(
            "query_api_event_subscribers",
            "Open event streams",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._dropped = Counter(
            "query_api_event_subscribers_dropped",
            "Event streams ended because their client fell too far behind",
            registry=self._registry,
        )
        self._skipped = Counter(
            "query_api_skipped",
            "Messages of the engine that could not be read, by reason",
            ("reason",),
            registry=self._registry,
        )
        self._refused_connections = Counter(
            "query_api_connections_refused",
            "Connections closed by us, by reason: too many, a head too long, a request too slow, nothing read",
            ("reason",),
            registry=self._registry,
        )
        # Finding a labelled child costs more than counting with it.
        self._request_child = cache(self._requests.labels)
        self._request_time_child = cache(self._request_seconds.labels)
        self._fast_path_child = cache(self._fast_path.labels)
        self._routed_child = cache(self._routed.labels)
        self._answer_child = cache(self._answer_seconds.labels)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._request_child(method, route, str(status)).inc()
        self._request_time_child(route).observe(seconds)

    def fast_path(self, outcome: str) -> None:
        self._fast_path_child(outcome).inc()

    def answer(self, path: str, routed_by: str, seconds: float) -> None:
        self._answer_child(path).observe(seconds)
        self._routed_child(routed_by).inc()

    def refused(self) -> None:
        self._routed_child("refused").inc()

    def check(self, sent: bool) -> None:
        self._checks.labels("sent" if sent else "dropped").inc()

    def skipped(self, reason: str) -> None:
        self._skipped.labels(reason).inc()

    def connection_refused(self, reason: str) -> None:
        self._refused_connections.labels(reason).inc()

    def subscribers(self, change: int) -> None:
        self._subscribers.inc(change)

    def subscriber_dropped(self) -> None:
        self._dropped.inc()

    def render(self, status: Status | None, board_alive: bool) -> bytes:
        """The text format, summed over workers. ``status`` is the engine's, None where it does not answer."""
        registry = self._registry
        if MULTIPROCESS_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        engine = CollectorRegistry()
        engine.register(_EngineCollector(status, board_alive))
        return generate_latest(registry) + generate_latest(engine)

    def close(self) -> None:
        """Take this worker's gauges out of the sum; its counters stay in it."""
        if MULTIPROCESS_FOLDER in os.environ:
            mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]


def _conservation(status: Status) -> Iterable[Metric]:
    """Per consumer and partition, and in records: consumed = applied + dead-lettered + duplicates + late."""
    consumed = CounterMetricFamily(
        "stream_engine_consumer_records_consumed",
        "Records read once and acknowledged by the engine",
        labels=("consumer", "topic", "partition"),
    )
    settled = CounterMetricFamily(
        "stream_engine_consumer_records_settled",
        "The same records by what became of them",
        labels=("consumer", "topic", "partition", "outcome"),
    )
    for consumer, records in status.records.items():
        for name, counts in records.items():
            where = (consumer, *name.rsplit("/", 1))
            consumed.add_metric(where, counts.consumed)
            for outcome in ("applied", "dead_lettered", "duplicates", "late"):
                settled.add_metric((*where, outcome), getattr(counts, outcome))
    yield consumed
    yield settled


def _consumers(status: Status) -> Iterable[Metric]:
    """Each consumer's own counters: its series ends with it. A sum over the present ones would go down instead,
    which reads as a reset, and as so many records more."""
    families: dict[str, CounterMetricFamily] = {}
    for consumer, counters in status.consumer_counters.items():
        for name, value in counters.items():
            metric = f"stream_engine_consumer_{name}"
            if name not in families:
                families[name] = CounterMetricFamily(metric, consumer_counter_help(name), labels=("consumer",))
            families[name].add_metric((consumer,), value)
    yield from families.values()


def _risk(calibration: CalibrationReport) -> Iterable[Metric]:
    """The gate of each question class, and what checks of its fast answers say about it."""
    for name, value, text in (
        ("checks", "checks_total", "Decision points whose fast answer was compared with the full path's"),
        ("false_accepts", "false_accepts_total", "Checked decision points whose two answers differed"),
    ):
        counter = CounterMetricFamily(f"stream_engine_risk_{name}", text, labels=("class",))
        for entry in calibration.classes:
            counter.add_metric((entry.class_,), getattr(entry, value))
        yield counter
    for name, value, text in (
        ("gate_tau", "tau", "Gap in logits that an answer needs"),
        ("gate_open", "open", "Whether the class has a fast path"),
        ("risk_budget", "budget", "False-accept rate that the class may have"),
        ("risk_rate_lower", "lower", "Anytime-valid lower bound of the false-accept rate under the present tau"),
        ("risk_rate_upper", "upper", "Anytime-valid upper bound of the same rate"),
        ("risk_evidence", "evidence", "The detector's evidence of a rate above the budget"),
        ("risk_threshold", "threshold", "Evidence at which tau is raised, then the class closed"),
    ):
        gauge = GaugeMetricFamily(f"stream_engine_{name}", text, labels=("class",))
        for entry in calibration.classes:
            gauge.add_metric((entry.class_,), float(getattr(entry, value)))
        yield gauge
    rate = GaugeMetricFamily("stream_engine_risk_rate", "Share of its checks that differed", labels=("class",))
    state = GaugeMetricFamily("stream_engine_risk_state", "1 for the class's state", labels=("class", "state"))
    for entry in calibration.classes:
        if entry.rate is not None:
            rate.add_metric((entry.class_,), entry.rate)
        state.add_metric((entry.class_, entry.state), 1.0)
    yield rate
    yield state
    dropped = CounterMetricFamily(
        "stream_engine_risk_checks_dropped", "Checks that were not made, by reason", labels=("reason",)
    )
    for reason, count in calibration.dropped.items():
        dropped.add_metric((reason,), count)
    yield dropped


class _EngineCollector(Collector):
    """The engine's state at one scrape, under names that begin with ``stream_engine_``."""

    def __init__(self, status: Status | None, board_alive: bool) -> None:
        self._status = status
        self._board_alive = board_alive

    def collect(self) -> Iterable[Metric]:
        status = self._status
        yield GaugeMetricFamily(
            "stream_engine_up", "Whether the engine answers this API", float(status is not None)
        )
        yield GaugeMetricFamily(
            "stream_engine_board_alive",
            "Whether the engine holds the ready board's lease",
            float(self._board_alive),
        )
        if status is None:
            return
        yield GaugeMetricFamily(
            "stream_engine_ready", "Whether the engine says that it is ready", float(status.ready)
        )
        yield GaugeMetricFamily("stream_engine_uptime_seconds", "Time since the engine started", status.uptime_s)
        yield GaugeMetricFamily(
            "stream_engine_oldest_work_seconds", "Age of the oldest waiting work item", status.oldest_work_s
        )
        yield GaugeMetricFamily("stream_engine_consumers", "Connected consumers", status.consumers)
        applied = GaugeMetricFamily(
            "stream_engine_partition_applied_offset",
            "Next offset that the engine expects to apply",
            labels=("topic", "partition", "state"),
        )
        for owned in status.partitions:
            applied.add_metric((owned.topic, str(owned.partition), owned.state), owned.applied)
        yield applied
        lag = GaugeMetricFamily(
            "stream_engine_consumer_lag_records",
            "Records in the log that are not applied yet",
            labels=("topic", "partition"),
        )
        for partition, records in status.lag.items():
            lag.add_metric(tuple(partition.rsplit("/", 1)), records)
        yield lag
        yield from _conservation(status)
        yield from _consumers(status)
        yield from _risk(status.calibration)
        for name, value in status.counters.items():
            yield CounterMetricFamily(f"stream_engine_{name}", ENGINE_COUNTERS.get(name, name), value)
        for name, value in status.gauges.items():
            yield GaugeMetricFamily(f"stream_engine_{name}", ENGINE_GAUGES.get(name, name), value)
