"""Where a partition starts: its committed point, the windows beside it, the seek, and the word to the engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consumers.kafka.offsets import RebuildPlan, plan_rebuild
from consumers.kafka.source import KafkaSource, SourcePartition, SourceUnavailable
from consumers.stream import PartitionStream
from consumers.wire.open_bars import TradeBars
from consumers.writers.windows import StoredWindows, WindowLoad, WindowWriter, in_parts
from stream_engine.config.config import Config
from stream_engine.messages import Asleep, Restore, ToEngine
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

LOOKUP_RETRY_S = 1.0
MESSAGE_SLEEPERS = 10_000
"""Of one message, some 0.3 MB."""
MAX_LOADS = 4
"""Partitions whose windows are read at the same time."""


@dataclass(frozen=True, slots=True)
class _Start:
    """A partition whose start is planned, and whose windows are being read."""

    plan: RebuildPlan
    windows: WindowLoad


class Starts:
    """Partitions between their assignment and their first record. One thread, the one that polls."""

    def __init__(
        self,
        config: Config,
        source: KafkaSource,
        windows: WindowWriter,
        send: Callable[[ToEngine], None],
        skipped: Skipped,
    ) -> None:
        self._config = config
        self._source = source
        self._windows = windows
        self._send = send
        self._skipped = skipped
        self._planned: dict[SourcePartition, _Start] = {}
        self._generation = 0
        self._plan_at = 0.0

    def forget(self, partition: SourcePartition) -> None:
        """It is no longer ours, or starts anew: what was planned does not hold."""
        self._planned.pop(partition, None)

    def begin(self, stream: PartitionStream, now: float) -> bool:
        """Decide where to start, have the windows read, then seek there and tell the engine; called again until it
        returns True, or the stream's ``retry_at`` says when. ``now`` is the monotonic clock's at the start of the
        turn: once the broker has not answered, nothing else is looked up in that turn. Raises OffsetResetRequired,
        WindowsTopicTooSmall."""
        if self._windows.deleting(stream.partition):
            return False
        start = self._planned.get(stream.partition)
        try:
            if start is None:
                if len(self._planned) < MAX_LOADS and now >= self._plan_at:
                    self._planned[stream.partition] = self._plan(stream)
                return False
            stored = start.windows.result()
        except SourceUnavailable as error:
            log.warning("%s cannot start yet: %s", stream.partition, error)
            self.forget(stream.partition)
            # Not of ``now``: a lookup may have waited for seconds, and others in the same turn would as well.
            stream.retry_at = self._plan_at = time.monotonic() + LOOKUP_RETRY_S
            return False
        if stored is None:
            return False
        self.forget(stream.partition)
        if not start.plan.keeps_windows:
            stored = stored.all_stale(stream.partition.topic)
        if stored.stale:
            self._delete(stream.partition, stored.stale)
            return False
        return self._start(stream, start.plan, stored)

    def _delete(self, partition: SourcePartition, stale: Sequence[bytes]) -> None:
        """It is planned again once they are gone: no new window takes the place of a deletion that is still to be
        written, and no start is committed beside windows that a successor would take for ours."""
        log.warning("%s: %d windows of an earlier topic are deleted", partition, len(stale))
        for key in stale:
            self._windows.delete(partition, key)

    def _plan(self, stream: PartitionStream) -> _Start:
        # The committed floor first: the windows it counts on are in the topic by then.
        kafka = self._config.kafka
        committed = stream.commit_point or self._source.committed(stream.partition)
        beginning, end = self._source.bounds(stream.partition)
        plan = plan_rebuild(committed, beginning, end, kafka.max_rebuild_records, kafka.offset_reset)
        if plan.warning:
            level = logging.INFO if committed is None else logging.WARNING
            log.log(level, "%s: %s", stream.partition, plan.warning)
        return _Start(plan, WindowLoad(kafka, stream.partition, self._skipped))

    def _start(self, stream: PartitionStream, plan: RebuildPlan, stored: StoredWindows) -> bool:
        # Seeks happen here, on the poll thread, never in the listener, where one would race with fetches.
        if not self._source.seek(stream.partition, plan.start):
            return False  # taken away meanwhile; its event follows
        # Of the clock: it also grows over restarts, and when a partition comes back from another member.
        self._generation = max(self._generation + 1, time.time_ns() // 1_000)
        bars = self._trade_bars(stream.partition, stored)
        self._send(stream.begin(plan, self._generation, bars))
        for part in in_parts(stored.windows):
            self._send(Restore(*stream.partition, self._generation, part))
        for first in range(0, len(stored.sleepers), MESSAGE_SLEEPERS):
            sleepers = stored.sleepers[first : first + MESSAGE_SLEEPERS]
            self._send(Asleep(*stream.partition, self._generation, sleepers))
        # What is committed was acknowledged, if in an earlier life: windows that tell of that only need not wait.
        self._windows.acknowledged(stream.partition, plan.live_from - 1)
        log.info(
            "%s starts at %d with %d windows and %d sleepers, live from %d, generation %d",
            *(stream.partition, plan.start, len(stored.windows), len(stored.sleepers)),
            *(plan.live_from, self._generation),
        )
        return True

    def _trade_bars(self, partition: SourcePartition, stored: StoredWindows) -> TradeBars | None:
        kafka = self._config.kafka
        if partition.topic != kafka.trades_topic:
            return None
        quiet_records = self._config.engine.quiet_records
        bars = TradeBars(kafka.bar_seconds, kafka.open_bar, kafka.bar_time, quiet_records)
        bars.restore(stored.windows, stored.open_bars)
        return bars
