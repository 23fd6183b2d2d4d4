"""What became of each partition's records, as Prometheus reads it."""

from __future__ import annotations

from query_api.metrics import ApiMetrics
from stream_engine.messages import RecordCounts, Status

from .conftest import CALIBRATION


def test_consumed_and_settled_records_are_exported_by_partition() -> None:
    counts = {"market.bars/3": RecordCounts(20, 12, 4, 3, 1), "a/b/0": RecordCounts(1, 1)}
    text = (
        ApiMetrics()
        .render(Status("b", "m", True, (), 0, 0, 1, (), {}, {}, {}, CALIBRATION, counts), True)
        .decode()
    )
    where = 'partition="3",topic="market.bars"'
    assert f"stream_engine_consumer_records_consumed_total{{{where}}} 20.0" in text
    settled = {"applied": 12, "dead_lettered": 4, "duplicates": 3, "late": 1}
    for outcome, count in settled.items():
        assert f'stream_engine_consumer_records_settled_total{{outcome="{outcome}",{where}}} {count}.0' in text
    assert 'stream_engine_consumer_records_consumed_total{partition="0",topic="a/b"} 1.0' in text
