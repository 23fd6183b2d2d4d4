"""What the counters and gauges say that travel by name in messages: the help texts of ``/metrics``."""

from __future__ import annotations

from dataclasses import fields

from stream_engine.messages.counters import EngineCounters
from stream_engine.util.skipped import MESSAGE_REASONS

ENGINE_COUNTERS = {
    **{counter.name: counter.metadata["help"] for counter in fields(EngineCounters)},
    "preposition_slots_total": "Decision points written to the ready board",
    "preposition_hits_total": "Decision points that a query read while valid, whatever the gate said (Eq. 8)",
    "preposition_wasted_total": "Decision points that were replaced before a query read them",
    "board_full_total": "Writes that found no room on the ready board",
    "messages_malformed_total": "Messages from other processes that could not be read",
    "messages_skipped_total": "Messages from other processes that were not taken, whatever the reason",
    **{f"messages_skipped_{reason}_total": f"Messages {text}" for reason, text in MESSAGE_REASONS.items()},
}
"""Prefixed ``stream_engine_``; the keys of ``Status.counters``."""

ENGINE_GAUGES = {
    "sessions": "Sessions",
    "sessions_dormant": "Sessions that sleep: nobody has fed or asked them for engine.sleep_after_s",
    "sessions_waking": "Sessions that sleep and have been asked for, until their windows are read",
    "sessions_resident": "Sessions with resident cells",
    "sessions_fit": "Sessions that have room in engine.kv_memory",
    "cells_used": "Cells in use: one is a token's keys and values over all layers",
    "cells_total": "Cells that engine.kv_memory has room for",
    "kv_bytes_used": "Bytes of the cells in use",
    "kv_bytes_total": "Bytes of all cells",
    "extents_lent": "Runs of cells lent by the pool, for second slabs and for branches",
    "extents_total": "Runs of cells that the pool has",
    "standing_queries": "Registered standing queries",
    "standing_sessions_waiting": "Sessions that a pattern or a deletion has still to be held against in idle time",
    "questions_promoted": "Questions that ride along now, of all sessions",
    "queue_queries": "Queries in hand that need a step",
    "queue_queries_waiting": "Queries that wait for their freshness bounds",
    "queue_commits": "Sessions with records that wait for a step",
    "queue_checks": "Fast answers that wait for a check",
    "queue_standing": "Sessions with standing queries that wait for idle time",
    "queue_lone": "Sessions with pre-positions that wait for idle time",
    "queue_refill": "Sessions without cells that wait to be computed on the workbench",
    "queue_second_slab": "Sessions whose next window waits to be pre-filled",
    "consumers_without_kafka": "Consumers that Kafka does not answer: the lag is then of before",
    "partitions_unreadable": "Partitions that stand at an offset which cannot be read",
}
"""Prefixed ``stream_engine_``; the keys of ``Status.gauges``."""

CONSUMER_COUNTERS = {
    "records_total": "Live records sent to the engine",
    "records_replayed_total": "Records sent again to refill windows",
    "bars_total": "Good bars in all records sent",
    "records_acknowledged_total": "Live records that the engine has acknowledged",
    "answers_written_total": "Standing-query answers written to the answers topic",
    "answers_repeated_total": "Standing-query answers that the topic had already",
    "commits_total": "Offset commits",
    "rebuilds_total": "Starts of a partition: assignments, and restarts for a refusal or a new engine",
    "dead_letters_total": "Dead letters",
    "skipped_total": "Records of topics of our own, and messages of the engine, that were passed over",
}
"""Prefixed ``stream_engine_consumer_``; the keys of ``ConsumerReport.counters``, beside those by reason."""

_BY_REASON = {"dead_letters_": "Dead letters with the reason", "skipped_": "Records passed over with the reason"}


def consumer_counter_help(name: str) -> str:
    """What a consumer's counter counts; one by reason is named after its reason."""
    if name in CONSUMER_COUNTERS:
        return CONSUMER_COUNTERS[name]
    for prefix, text in _BY_REASON.items():
        if name.startswith(prefix):
            return f"{text} {name.removeprefix(prefix).removesuffix('_total')}"
    return name
