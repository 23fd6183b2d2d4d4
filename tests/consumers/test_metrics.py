"""What a consumer counts, by name."""

from __future__ import annotations

from consumers.metrics import ConsumerMetrics
from stream_engine.messages.metric_help import CONSUMER_COUNTERS, consumer_counter_help


def test_every_counter_has_a_help_text_and_no_other_does() -> None:
    assert set(ConsumerMetrics().counters()) == set(CONSUMER_COUNTERS)


def test_dead_letters_by_reason_are_told_as_such() -> None:
    metrics = ConsumerMetrics()
    metrics.dead_lettered["not_json"] += 2
    assert metrics.counters()["dead_letters_not_json_total"] == metrics.counters()["dead_letters_total"] == 2
    assert consumer_counter_help("dead_letters_not_json_total") == "Dead letters with the reason not_json"
    assert consumer_counter_help("dead_letters_total") == "Dead letters"


def test_what_was_passed_over_is_told_by_reason() -> None:
    metrics = ConsumerMetrics()
    metrics.skipped.note("unreadable", "a stranger's")
    assert metrics.counters()["skipped_unreadable_total"] == metrics.counters()["skipped_total"] == 1
    assert consumer_counter_help("skipped_unreadable_total") == "Records passed over with the reason unreadable"
