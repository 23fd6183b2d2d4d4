"""The consumer against a real broker and an engine that the test plays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, OffsetAndMetadata, TopicPartition

from consumers.files.reader import read_bars
from consumers.kafka.client import BrokerUnreachable
from consumers.kafka.offsets import OffsetResetRequired
from consumers.kafka.publish import publish
from consumers.kafka.topics import TopicMissing, ensure_topics
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import (
    Ack,
)
from tests.support.played_engine import START_US, Bench


def bar(minute: int, price: float = 100.0) -> dict[str, Any]:
    time_s = START_US // 1_000_000 + 60 * minute
    return {"ts": time_s, "open": price, "high": price + 1, "low": price - 1, "close": price, "volume": 5}


@pytest.fixture
def make(kafka: Any, topic_prefix: str, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def build(**options: Any) -> Bench:
        benches.append(Bench(kafka.bootstrap, topic_prefix, tmp_path, **options))
        return benches[-1]

    yield build
    for bench in benches:
        bench.close()


def test_published_becomes_committed_with_its_floor(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.put(*(bar(i) for i in range(10)))
    engine = bench.engine("boot-1")
    engine.floor_back = 4
    consumer = bench.consume()
    engine.until(lambda: bench.committed() == (10, 6), "offset 10 with floor 6 is committed")
    assert engine.offsets() == list(range(10))
    assert engine.assigns[0].start == engine.assigns[0].live_from == 0
    first = engine.batches[0].records[0]
    assert (first.key, first.bars[0].time_us, first.bars[0].high) == ("AAPL", START_US, 101.0)
    assert [b.follows for b in engine.batches] == [-1, *(b.last for b in engine.batches[:-1])]
    bench.stop()
    assert consumer.metrics.as_dict()["consumed"] == 10
    assert [r.generation for r in engine.revokes] == [engine.assigns[0].generation]


def test_a_poison_record_is_dead_lettered_and_the_partition_goes_on(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.put(bar(0), b"{not json", [bar(1), {**bar(2), "close": 500}], bar(3))
    bench.put(b"", key=None)
    bench.put(bar(4))
    engine = bench.engine("boot-1")
    bench.consume()
    engine.until(lambda: bench.committed() == (6, 6), "all six are committed")
    assert engine.offsets() == [0, 2, 3, 5]
    assert sum(b.consumed for b in engine.batches) == 6
    json_, one_bar, no_key = sorted(bench.dead_letters(3), key=lambda r: int(dict(r.headers)["offset"]))
    assert json_.value == b"{not json"
    assert json_.key == b"AAPL"
    found = dict(json_.headers)
    assert (found["topic"], found["partition"], found["offset"]) == (bench.topic.encode(), b"0", b"1")
    assert (found["key"], found["reason"]) == (b"AAPL", b"not_json")
    assert b"send a JSON object" in found["detail"]
    assert "bar" not in found
    assert json.loads(one_bar.value)["close"] == 500
    assert dict(one_bar.headers)["bar"] == b"1"
    assert dict(one_bar.headers)["reason"] == b"outside_range"
    assert no_key.key is None
    assert dict(no_key.headers)["reason"] == b"key_missing"


def test_without_an_acknowledgement_nothing_is_committed(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.put(bar(0), b"bad", bar(1))
    engine = bench.engine("boot-1", acks=False)
    bench.consume()
    engine.until(lambda: len(engine.offsets()) == 2, "both good records arrive")
    bench.dead_letters(1)
    engine.for_turns(60)  # longer than the commit interval
    assert bench.committed() == (0, 0)  # the start that was chosen
    engine.acknowledge()
    engine.until(lambda: bench.committed() != (0, 0), "the acknowledgement is committed")
    assert bench.committed() == (3, 3)


def test_rejected_records_are_dead_lettered_from_the_bytes_held(make: Callable[..., Bench]) -> None:
    bench = make()
    engine = bench.engine("boot-1")
    engine.reject = {1: "late"}
    values = [bar(0), bar(1), bar(2)]
    bench.put(*values)
    bench.consume()
    engine.until(lambda: bench.committed() == (3, 3), "all three are settled")
    (letter,) = bench.dead_letters(1)
    assert json.loads(letter.value) == values[1]
    assert dict(letter.headers)["reason"] == b"late"
    assert dict(letter.headers)["detail"] == b"as scripted"


def test_without_credits_it_is_paused_but_stays_in_the_group(make: Callable[..., Bench]) -> None:
    bench = make(session_timeout_ms=6_000)
    bench.put(*(bar(i) for i in range(20)))
    engine = bench.engine("boot-1", credits_=8, acks=False)
    bench.consume()
    engine.until(lambda: len(engine.offsets()) == 8, "as many records as there are credits")
    engine.for_turns(100)
    assert len(engine.offsets()) == 8
    assert not engine.revokes
    engine.acks = True
    engine.until(lambda: bench.committed() == (20, 20), "the rest flows when credits return")
    assert engine.offsets() == list(range(20))
    assert len(engine.assigns) == 1


def test_a_new_engine_gets_the_windows_again_from_the_floor(make: Callable[..., Bench]) -> None:
    bench = make()
    first = bench.engine("boot-1")
    first.floor_back = 3
    bench.put(*(bar(i) for i in range(4)), b"bad", bar(5))
    bench.consume()
    first.until(lambda: bench.committed() == (6, 3), "the first life is committed")
    bench.engines.remove(first)
    first.server.close()
    second = bench.engine("boot-2")
    second.until(lambda: len(second.offsets()) >= 2, "the window is replayed to the new engine")
    bench.put(bar(6))
    second.until(lambda: bench.committed() == (7, 7), "the new life goes on")
    (assign,) = second.assigns
    assert (assign.start, assign.live_from) == (3, 6)
    assert assign.generation > first.assigns[-1].generation
    assert second.offsets() == [3, 5, 6]
    assert sum(b.consumed for b in second.batches) == 4
    bench.dead_letters(1)  # not a second time in the replay


def test_a_restarted_consumer_replays_from_the_committed_floor(make: Callable[..., Bench]) -> None:
    bench = make()
    engine = bench.engine("boot-1")
    engine.floor_back = 5
    bench.put(*(bar(i) for i in range(12)))
    bench.consume()
    engine.until(lambda: bench.committed() == (12, 7), "the first life is committed")
    bench.stop()
    seen = len(engine.assigns)
    bench.put(bar(12))
    bench.consume()
    engine.until(lambda: bench.committed() == (13, 8), "the new record is committed")
    again = engine.assigns[seen]
    assert (again.start, again.live_from) == (7, 12)
    assert again.generation > engine.assigns[0].generation
    replayed = [r.offset for b in engine.batches if b.generation == again.generation for r in b.records]
    assert replayed == list(range(7, 13))


def test_a_refused_batch_leads_to_a_new_generation(make: Callable[..., Bench]) -> None:
    bench = make()
    engine = bench.engine("boot-1", acks=False)
    bench.put(*(bar(i) for i in range(3)))
    bench.consume()
    engine.until(lambda: len(engine.offsets()) == 3, "the batch arrives")
    engine.refuse(engine.batches[-1])
    engine.unacknowledged.clear()
    engine.acks = True
    engine.until(lambda: bench.committed() == (3, 3), "the records are sent again and committed")
    assert len(engine.assigns) == 2
    assert engine.assigns[1].generation > engine.assigns[0].generation
    assert engine.offsets() == [0, 1, 2, 0, 1, 2]


def test_an_acknowledgement_of_a_past_generation_settles_nothing(make: Callable[..., Bench]) -> None:
    bench = make()
    engine = bench.engine("boot-1", acks=False)
    bench.put(bar(0))
    bench.consume()
    engine.until(lambda: len(engine.offsets()) == 1, "the batch arrives")
    old = engine.batches[-1]
    engine.refuse(old)
    engine.until(lambda: len(engine.batches) == 2, "the record is sent again")
    engine.send(
        Ack(
            boot_id="boot-1",
            topic=old.topic,
            partition=old.partition,
            generation=old.generation,
            last=old.last,
            floor=0,
        )
    )
    engine.for_turns(60)
    assert bench.committed() == (0, 0)


def test_two_partitions_move_on_their_own(make: Callable[..., Bench]) -> None:
    bench = make(partitions=2)
    engine = bench.engine("boot-1")
    bench.put(*(bar(i) for i in range(5)), key="AAPL", partition=0)
    bench.put(*(bar(i) for i in range(3)), key="MSFT", partition=1)
    bench.consume()
    engine.until(lambda: (bench.committed(0), bench.committed(1)) == ((5, 5), (3, 3)), "both are committed")
    assert engine.offsets(0) == list(range(5))
    assert engine.offsets(1) == list(range(3))
    assert len({a.generation for a in engine.assigns}) == 2


def test_a_second_member_takes_a_partition_and_continues_it(make: Callable[..., Bench]) -> None:
    bench = make(partitions=2)
    engine = bench.engine("boot-1")
    bench.put(*(bar(i) for i in range(5)), key="AAPL", partition=0)
    bench.put(*(bar(i) for i in range(5)), key="MSFT", partition=1)
    bench.consume()
    engine.until(lambda: len(engine.offsets(0) + engine.offsets(1)) == 10, "the first member reads both")
    bench.consume()
    engine.until(lambda: len(engine.revokes) == 1 and len(engine.assigns) == 3, "one partition moves over")
    moved = engine.revokes[0].partition
    assert engine.assigns[-1].partition == moved
    assert engine.assigns[-1].live_from == 5  # committed as it was handed over
    kept = 1 - moved
    assert [a.partition for a in engine.assigns].count(kept) == 1  # a kept partition is not built again
    bench.put(bar(5), key="AAPL", partition=0)
    bench.put(bar(5), key="MSFT", partition=1)
    engine.until(lambda: (bench.committed(0), bench.committed(1)) == ((6, 6), (6, 6)), "both go on")


def test_a_replay_that_ends_in_transaction_markers_is_finished(make: Callable[..., Bench]) -> None:
    bench = make()
    writer = KafkaProducer(
        bootstrap_servers=bench.settings.bootstrap_servers, transactional_id=bench.topic + "-writer"
    )
    writer.init_transactions()
    writer.begin_transaction()
    writer.send(bench.topic, key=b"AAPL", value=json.dumps(bar(0)).encode(), partition=0)
    writer.commit_transaction()
    writer.close()
    tp = TopicPartition(bench.topic, 0)
    engine = bench.engine("boot-1")
    engine.until(lambda: bench.viewer.end_offsets([tp])[tp] == 2, "the record and its marker are in the log")
    bench.viewer.assign([tp])
    bench.viewer.commit({tp: OffsetAndMetadata(2, '{"floor":0}', -1)}, timeout_ms=10_000)
    bench.consume()
    engine.until(lambda: any(b.last == 1 for b in engine.batches), "the replay is closed up to live_from")
    assert engine.offsets() == [0]
    assert (engine.assigns[0].start, engine.assigns[0].live_from) == (0, 2)


def test_no_committed_offset_and_fail_stops_with_what_to_do(make: Callable[..., Bench]) -> None:
    bench = make(offset_reset="fail")
    bench.put(bar(0))
    engine = bench.engine("boot-1")
    bench.consume()
    engine.until(lambda: bench.failure is not None, "the consumer stops")
    assert isinstance(bench.failure, OffsetResetRequired)
    assert "reset-offsets" in str(bench.failure)


def test_latest_starts_at_the_end(make: Callable[..., Bench]) -> None:
    bench = make(offset_reset="latest")
    bench.put(*(bar(i) for i in range(5)))
    engine = bench.engine("boot-1")
    bench.consume()
    engine.until(lambda: bool(engine.assigns), "the partition starts")
    bench.put(bar(5))
    engine.until(lambda: bench.committed() == (6, 6), "only the new record is read")
    assert engine.offsets() == [5]


def test_a_restart_with_latest_goes_on_where_the_first_start_was(make: Callable[..., Bench]) -> None:
    bench = make(offset_reset="latest")
    bench.put(*(bar(i) for i in range(5)))
    engine = bench.engine("boot-1")
    bench.consume()
    engine.until(lambda: bench.committed() == (5, 5), "the start is committed before any record")
    bench.stop()
    bench.put(bar(5), bar(6))
    bench.consume()
    engine.until(lambda: bench.committed() == (7, 7), "what came between is read")
    assert engine.offsets() == [5, 6]


def test_records_deleted_under_the_consumer_are_an_explicit_choice(make: Callable[..., Bench], kafka: Any) -> None:
    bench = make()
    engine = bench.engine("boot-1", credits_=4, acks=False)
    bench.put(*(bar(i) for i in range(40)))
    bench.consume()
    engine.until(lambda: len(engine.offsets()) == 4, "it waits for credits")
    bench.stop()
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.delete_records({TopicPartition(bench.topic, 0): 30})
    admin.close()
    engine.acks, seen = True, len(engine.assigns)
    engine.credits = 1000
    engine.unacknowledged.clear()
    bench.consume()
    engine.until(lambda: bench.committed() == (40, 40), "it goes on where the log begins")
    assert engine.assigns[seen].start == 30
    assert engine.assigns[0].incomplete is False


def test_bars_of_a_file_arrive_in_their_order(make: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make()
    path = tmp_path / "bars.csv"
    path.write_text(
        "Symbol,Date,Open,High,Low,Close\nX,2020-01-03,2,2,2,2\nX,2020-01-02,1,1,1,1\nY,2020-01-01,3,3,3,3\n"
    )
    counted: list[int] = []
    assert publish(read_bars(path), bench.settings, bench.topic, 50.0, counted.append) == 3
    assert counted == [1, 1, 1]
    engine = bench.engine("boot-1")
    bench.consume()
    engine.until(lambda: bench.committed() == (3, 3), "all three are committed")
    closes = [(r.key, bar.close) for b in engine.batches for r in b.records for bar in r.bars]
    assert closes == [("Y", 3.0), ("X", 1.0), ("X", 2.0)]


def test_it_reports_its_lag_and_counters(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.put(*(bar(i) for i in range(9)), b"bad")
    engine = bench.engine("boot-1", credits_=4, acks=False)
    bench.consume()
    lag = f"{bench.topic}/0"
    engine.until(lambda: any(r.lag.get(lag) == 10 for r in engine.reports), "what is not applied is lag")
    bench.put(*(bar(i) for i in range(9, 14)))
    engine.until(lambda: any(r.lag.get(lag) == 15 for r in engine.reports), "it grows while nothing is fetched")
    engine.acks = True
    engine.until(lambda: engine.reports[-1].lag.get(lag) == 0, "the lag falls as records are applied")
    engine.until(lambda: engine.reports[-1].counters["records_acknowledged_total"] == 15, "all are counted")
    assert engine.reports[-1].counters["dead_letters_not_json_total"] == 1
    assert engine.reports[-1].partitions == {bench.topic: 1}
    assert engine.reports[-1].kafka_silent_since_ms is None


def test_publishing_does_not_make_up_a_topic(make: Callable[..., Bench]) -> None:
    bench = make()
    with pytest.raises(TopicMissing, match=bench.topic):  # it lists what there is
        publish([("X", {})], bench.settings, bench.topic + "-absent")
    assert bench.topic + "-absent" not in bench.viewer.topics()


def test_topics_are_made_once(make: Callable[..., Bench]) -> None:
    bench = make(partitions=3)
    assert ensure_topics(bench.settings) == []
    assert bench.viewer.partitions_for_topic(bench.topic) == {0, 1, 2}
    assert bench.viewer.partitions_for_topic(bench.settings.dead_letter_topic) == {0}


def test_an_unreachable_broker_is_named() -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 "):
        ensure_topics(KafkaSettings(bootstrap_servers="127.0.0.1:1"), timeout_s=1.0)
