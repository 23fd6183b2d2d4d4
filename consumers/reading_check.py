"""Whether what the consumer has still to read can be read: for ``doctor``. Joins no group, commits nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from kafka import TopicPartition, codec
from kafka.errors import KafkaError

from consumers.kafka.careful import CarefulConsumer
from consumers.kafka.client import client_options
from consumers.kafka.salvage import Unread
from stream_engine.config.kafka import KafkaSettings
from stream_engine.util.findings import Finding, ok, problem, warning

READ_S = 3.0
POLL_MS = 200
CODECS = {"gzip": codec.has_gzip, "snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}


def check_codecs() -> Finding:
    """Whether batches of every producer can be read."""
    missing = [name for name, present in CODECS.items() if not present()]
    if not missing:
        return ok("codecs", f"{', '.join(CODECS)} can be read")
    found = f"{', '.join(missing)} cannot be read: a partition stands still at the first batch compressed so"
    remedy = f"pip install 'kafka-python[{','.join(missing)}]', then start the consumer again"
    return problem("codecs", found, remedy)


def check_reading(settings: KafkaSettings, spans: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[Finding]:
    """Reads what lies in ``spans`` (from an offset to the one after the last), as far as ``READ_S`` seconds go."""
    behind = {tp: span for tp, span in spans.items() if span[0] < span[1]}
    if not behind:
        return
    consumer = CarefulConsumer(
        waits_for_codec=True,
        **client_options(settings),
        client_id="stream-engine-doctor",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    try:
        consumer.assign(list(behind))
        for tp, (start, _) in behind.items():
            consumer.seek(tp, start)
        yield from _read(consumer, behind)
    except KafkaError as error:
        remedy = "where the broker has ACLs, grant Read on the topics"
        yield problem("reading", f"it is refused: {type(error).__name__}: {error}", remedy)
    finally:
        consumer.close(timeout_ms=1_000)


def _read(consumer: CarefulConsumer, behind: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[Finding]:
    left, deadline, read, unread = set(behind), time.monotonic() + READ_S, 0, 0
    while left and time.monotonic() < deadline:
        for tp, records in consumer.poll(timeout_ms=POLL_MS).items():
            read += len(records)
            unread += sum(isinstance(record.value, Unread) for record in records)
            if records[-1].offset + 1 >= behind[tp][1]:
                left.discard(tp)
        left -= consumer.stops.keys()
    for tp, stop in sorted(consumer.stops.items()):
        remedy = (
            "where a codec is missing, install it; else the consumer passes a batch that the log holds so, and "
            "tries anything else for as long as it runs. To go past it by hand: "
            f"stop the consumer, then kafka-consumer-groups.sh --reset-offsets --topic {tp.topic}:{tp.partition} "
            f"--to-offset {stop.offset + 1} --execute"
        )
        yield problem(f"partition {tp.topic}/{tp.partition}", str(stop), remedy)
    if unread:
        remedy = "the consumer puts them on the dead-letter topic, with the reason; look at who produced them"
        yield warning("reading", f"{unread} of the next {read} records cannot be read", remedy)
    elif not consumer.stops:
        yield ok("reading", f"the next {read} records can be read")
