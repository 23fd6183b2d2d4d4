"""Plain counters of one consumer: logged every half minute, reported to the engine every second."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from stream_engine.messages import RecordCounts
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ConsumerMetrics:
    """Counts since the start. Records are counted as Kafka has them; bars apart, as a record may be a list."""

    consumed: int = 0
    """Live records sent to the engine."""
    replayed: int = 0
    """Records sent again to refill windows."""
    bars: int = 0
    """Good bars in all of them."""
    acked: int = 0
    dead_lettered: Counter[str] = field(default_factory=Counter)
    """Dead letters by reason."""
    answers_written: int = 0
    """Answers of standing queries that the answers topic got from here."""
    answers_repeated: int = 0
    """Those that it had already."""
    skipped: Skipped = field(default_factory=lambda: Skipped(log))
    """Records of the windows, answers and standing-query topics that are none of ours."""
    commits: int = 0
    rebuilds: int = 0
    """Starts of a partition: assignments, and restarts for a refusal or a new engine."""
    in_flight: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    """Records in the log that the engine has not applied, by "topic/partition"."""

    records: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """What became of live records, by "topic/partition", under the names of ``RecordCounts``."""

    def counts(self) -> dict[str, RecordCounts]:
        return {partition: RecordCounts(**fates) for partition, fates in self.records.items() if fates}

    def counters(self) -> dict[str, float]:
        """For ``/metrics``, where each gets the prefix ``stream_engine_consumer_``."""
        skipped = self.skipped.counts
        by_reason = {f"dead_letters_{reason}_total": count for reason, count in self.dead_lettered.items()}
        by_reason |= {f"skipped_{reason}_total": count for reason, count in skipped.items()}
        return {
            "records_total": self.consumed,
            "records_replayed_total": self.replayed,
            "bars_total": self.bars,
            "records_acknowledged_total": self.acked,
            "answers_written_total": self.answers_written,
            "answers_repeated_total": self.answers_repeated,
            "commits_total": self.commits,
            "rebuilds_total": self.rebuilds,
            "dead_letters_total": self.dead_lettered.total(),
            "skipped_total": sum(skipped.values()),
            **by_reason,
        }

    def as_dict(self) -> dict[str, int | dict[str, int]]:
        return {
            "consumed": self.consumed,
            "replayed": self.replayed,
            "bars": self.bars,
            "acked": self.acked,
            "dead_lettered": dict(self.dead_lettered),
            "answers_written": self.answers_written,
            "answers_repeated": self.answers_repeated,
            "skipped": self.skipped.counts,
            "commits": self.commits,
            "rebuilds": self.rebuilds,
            "in_flight": self.in_flight,
            "lag": dict(self.lag),
        }
