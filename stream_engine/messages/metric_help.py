"""What the counters and gauges say that travel by name in messages: the help texts of ``/metrics``."""

from __future__ import annotations

from stream_engine.util.skipped import MESSAGE_REASONS

ENGINE_COUNTERS = {
    "commits_total": "Commits: the records of one key that one step appended",
    "records_total": "Records taken from consumers, those that were not applied included",
    "bars_total": "Bars applied",
    "late_bars_total": "Bars not applied, because they are older than the region's first",
    "gaps_total": "Bars that did not follow the one before at once",
    "duplicates_total": "Records not applied, because they were before",
    "replayed_total": "Records that refilled windows without running the model",
    "batches_refused_total": "Batches refused: out of order, or of an assignment that has ended",
    "steps_total": "Forward passes",
    "step_tokens_total": "Tokens of all forward passes",
    "step_seconds_total": "Time spent in forward passes",
    "prepositions_total": "Decision points decoded ahead",
    "prepositions_skipped_total": "Decision points left out of a step for want of cells",
    "evaluations_missed_total": "Commits at which a standing query with `on: commit` was not evaluated",
    "preposition_slots_total": "Decision points written to the ready board",
    "preposition_hits_total": "Decision points that a query read while valid, whatever the gate said (Eq. 8)",
    "preposition_wasted_total": "Decision points that were replaced before a query read them",
    "board_full_total": "Writes that found no room on the ready board",
    "answers_fast_total": "Answers of the engine from a ready distribution; those of the API are its own",
    "answers_fallthrough_total": "Answers decoded from a resident branch on (Eq. 5)",
    "answers_cold_total": "Answers decoded without a resident branch (Eq. 2)",
    "queries_refused_total": "Queries answered with an error: bounds not met, not supported, no such session",
    "queries_shed_total": "Queries refused with 429, because as many waited as may (engine.max_queries)",
    "queries_expired_total": "Queries dropped, because the API had given them up (api.engine_timeout_s)",
    "questions_promoted_total": "Questions that were asked often enough to ride along with commits",
    "questions_demoted_total": "Promoted questions that are not asked any more",
    "promoted_reads_total": "Answers from a promoted question's own distribution",
    "swaps_total": "Window swaps",
    "swaps_prepared_total": "Window swaps whose cells were pre-filled in idle time",
    "evictions_total": "Sessions whose cells went to another session",
    "messages_malformed_total": "Messages from other processes that could not be read",
    "messages_skipped_total": "Messages from other processes that were not taken, whatever the reason",
    **{f"messages_skipped_{reason}_total": f"Messages {text}" for reason, text in MESSAGE_REASONS.items()},
}
"""Prefixed ``stream_engine_``; the keys of ``Status.counters``."""

ENGINE_GAUGES = {
    "sessions": "Sessions",
    "sessions_resident": "Sessions with resident cells",
    "cells_resident": "Cells that hold a session's tokens",
    "cells_total": "The cell budget",
    "standing_queries": "Registered standing queries",
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
