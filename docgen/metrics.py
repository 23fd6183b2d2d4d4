"""The tables of metrics: rendered as ``/metrics`` renders them, of an engine that has something to say of each."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from docgen.blocks import table
from query_api.metrics import ApiMetrics
from stream_engine.messages import CalibrationReport, PartitionStatus, RecordCounts, Status
from stream_engine.messages.metric_help import CONSUMER_COUNTERS, ENGINE_COUNTERS, ENGINE_GAUGES
from stream_engine.messages.risk import ClassRisk


def metrics_blocks() -> dict[str, str]:
    """``api``: counted by API processes. ``engine``: told by the engine at each scrape."""
    families = [
        family
        for family in sorted(text_string_to_metric_families(_exposition()), key=lambda family: family.name)
        if not family.name.endswith("_created")  # when a counter began: the client library adds it to each
    ]
    api = [_row(family) for family in families if family.name.startswith("query_api")]
    engine = [_row(family) for family in families if family.name.startswith("stream_engine")]
    head = ("metric", "kind", "labels", "says")
    return {"api": table(head, *api), "engine": table(head, *engine)}


def _row(family: Metric) -> tuple[str, ...]:
    if not family.samples:
        raise ValueError(f"{family.name} has no sample, so its labels are not known: count one here")
    suffix = "_total" if family.type == "counter" else ""
    labels = {label: None for sample in family.samples for label in sample.labels if label != "le"}
    names = ", ".join(f"`{label}`" for label in labels)
    return f"`{family.name}{suffix}`", family.type, names, family.documentation


def _exposition() -> str:
    metrics = ApiMetrics()
    metrics.request("POST", "/v1/sessions/{session}/query", 200, 0.001)
    metrics.fast_path("fired")
    metrics.answer("fast", "listed", 0.001)
    metrics.check(sent=True)
    metrics.skipped("unreadable")
    metrics.connection_refused("too_slow")
    return metrics.render(_status(), board_alive=True).decode()


def _status() -> Status:
    risk = ClassRisk(
        class_="trend",
        state="OPEN",
        open=True,
        tau=1.5,
        tau_configured=1.5,
        budget=0.02,
        checks=1,
        false_accepts=0,
        rate=0.0,
        lower=0.0,
        upper=1.0,
        evidence=0.0,
        threshold=1.0,
        checks_total=1,
        false_accepts_total=0,
    )
    by_reason = {"dead_letters_REASON_total": 0.0, "skipped_REASON_total": 0.0}
    return Status(
        boot_id="boot",
        model="embedded",
        ready=True,
        reasons=(),
        uptime_s=1.0,
        oldest_work_s=0.0,
        consumers=1,
        partitions=(
            PartitionStatus(topic="market.bars", partition=0, generation=1, state="LIVE", applied=1, sessions=1),
        ),
        lag={"market.bars/0": 0},
        counters=dict.fromkeys(ENGINE_COUNTERS, 0.0),
        gauges=dict.fromkeys(ENGINE_GAUGES, 0.0),
        calibration=CalibrationReport(
            model="embedded",
            generic_class="trend",
            file=None,
            check_share=0.02,
            level=0.05,
            horizon=5000,
            classes=(risk,),
            dropped={"repeated": 0},
            waiting=0,
        ),
        records={"00aa": {"market.bars/0": RecordCounts()}},
        consumer_counters={"00aa": dict.fromkeys(CONSUMER_COUNTERS, 0.0) | by_reason},
    )
