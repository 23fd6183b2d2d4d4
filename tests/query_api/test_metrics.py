"""What became of each partition's records, as Prometheus reads it."""

from __future__ import annotations

from query_api.metrics import ApiMetrics
from stream_engine.messages import RecordCounts
from tests.support.api_service import status


def test_consumed_and_settled_records_are_exported_by_partition() -> None:
    counts = {"00aa": {"market.bars/3": RecordCounts(20, 12, 4, 3, 1)}, "00bb": {"a/b/0": RecordCounts(1, 1)}}
    text = ApiMetrics().render(status(records=counts), True).decode()
    whose, where = 'consumer="00aa"', 'partition="3",topic="market.bars"'
    assert f"stream_engine_consumer_records_consumed_total{{{whose},{where}}} 20.0" in text
    settled = {"applied": 12, "dead_lettered": 4, "duplicates": 3, "late": 1}
    for outcome, count in settled.items():
        series = f'{whose},outcome="{outcome}",{where}'
        assert f"stream_engine_consumer_records_settled_total{{{series}}} {count}.0" in text
    series = 'consumer="00bb",partition="0",topic="a/b"'
    assert f"stream_engine_consumer_records_consumed_total{{{series}}} 1.0" in text


def test_a_consumer_that_leaves_takes_nothing_off_the_others_counters() -> None:
    def consumers(counters: dict[str, dict[str, float]]) -> set[str]:
        told = status(consumer_counters=counters)
        text = ApiMetrics().render(told, True).decode()
        return {line for line in text.splitlines() if line.startswith("stream_engine_consumer_records_total")}

    both = consumers({"00aa": {"records_total": 7.0}, "00bb": {"records_total": 5.0}})
    assert both == {
        'stream_engine_consumer_records_total{consumer="00aa"} 7.0',
        'stream_engine_consumer_records_total{consumer="00bb"} 5.0',
    }
    left = consumers({"00bb": {"records_total": 6.0}})
    assert left == {'stream_engine_consumer_records_total{consumer="00bb"} 6.0'}
