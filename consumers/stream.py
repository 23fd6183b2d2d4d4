"""One partition between Kafka and the engine: what is in flight, held and settled in its current generation."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from consumers.kafka.offsets import CommitPoint, RebuildPlan, SettledOffsets
from consumers.kafka.source import SourcePartition
from consumers.wire.open_bars import OpenBar, TradeBars
from consumers.wire.reasons import DeadLetter, RawRecord, Reason
from consumers.wire.records import ParsedRecord
from stream_engine.messages import Ack, Assign, Batch, Record, Revoke


class StreamState(Enum):
    WAITING = "waiting"
    """Ours, but its start is not decided: newly assigned, refused, or the engine is new."""
    STREAMING = "streaming"
    REVOKED = "revoked"


_NEXT = {
    StreamState.WAITING: {StreamState.STREAMING, StreamState.REVOKED},
    StreamState.STREAMING: {StreamState.WAITING, StreamState.REVOKED},
    StreamState.REVOKED: set[StreamState](),
}


RETRY_FIRST_S = 0.1
RETRY_MOST_S = 5.0


@dataclass(frozen=True, slots=True)
class _InFlight:
    """``fates`` counts the live records whose fate is known without the engine."""

    last: int
    records: int
    fates: Counter[str]


def _fate(item: ParsedRecord) -> str | None:
    """What becomes of a record, in the words of ``RecordCounts``; None where the engine decides."""
    if item.record is not None:
        return None
    if item.repeated:
        return "duplicates"
    if len(item.dead) < item.bars_seen:
        return "applied"  # trades of a bar that a later record shows
    return "late" if all(letter.reason == Reason.LATE for letter in item.dead) else "dead_lettered"


class PartitionStream:
    """Batches out, acknowledgements in. Offsets are Kafka's; ``generation`` fences what is of earlier starts."""

    def __init__(self, partition: SourcePartition, since: float = 0.0, fates: Counter[str] | None = None) -> None:
        """``since`` is when the partition was assigned, on the caller's clock. ``fates`` is where live records
        are counted once they are acknowledged, under the names of ``RecordCounts``."""
        self.partition = partition
        self.fates = Counter() if fates is None else fates
        self.bars: TradeBars | None = None
        self._needed = 0
        self.since = since
        self.state = StreamState.WAITING
        self.generation = 0
        self.last = -1
        """The last offset sent to the engine."""
        self.acknowledged = -1
        """The last offset that the engine has applied."""
        self.live_from = 0
        self.serve_from = 0
        self.settled: SettledOffsets | None = None
        self.committed = -1
        """The offset known to be committed: nothing up to it is committed again."""
        self.retry_at = 0.0
        self._resets_in_a_row = 0
        self._in_flight: deque[_InFlight] = deque()
        self._held: dict[int, tuple[RawRecord, ...]] = {}

    @property
    def records_in_flight(self) -> int:
        return sum(batch.records for batch in self._in_flight)

    @property
    def batches_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def replaying(self) -> bool:
        """The engine does not serve it yet."""
        return self.state is StreamState.STREAMING and self.last < self.serve_from - 1

    @property
    def commit_point(self) -> CommitPoint | None:
        """What this life of the consumer knows to be settled; None before the first start."""
        return None if self.settled is None else self.settled.point

    @property
    def due_point(self) -> CommitPoint | None:
        """What is to be committed; None where that is known to be committed already."""
        if self.settled is None or self.settled.point.offset <= self.committed:
            return None
        return self.settled.point

    def begin(self, plan: RebuildPlan, generation: int, bars: TradeBars | None = None) -> Assign:
        """Start streaming, of a topic of trades by way of ``bars``; the message that tells the engine so."""
        self._move(StreamState.STREAMING)
        if plan.chosen:
            self.committed = -1  # it is to be committed, also where a topic made anew has lower offsets
        elif self.settled is None:
            self.committed = plan.live_from
        self.committed = min(self.committed, plan.live_from)
        self.generation = generation
        self.last = self.acknowledged = plan.start - 1
        self.live_from = plan.live_from
        self.serve_from = max(plan.live_from, plan.serve_from)
        self.bars, self._needed = bars, 0
        self.settled = SettledOffsets(plan.start, plan.live_from)
        return Assign(
            topic=self.partition.topic,
            partition=self.partition.partition,
            generation=generation,
            start=plan.start,
            live_from=plan.live_from,
            incomplete=plan.incomplete,
            serve_from=plan.serve_from,
        )

    def accept(self, parsed: Sequence[ParsedRecord]) -> tuple[Batch, list[DeadLetter]]:
        """The next records as one batch, and the dead letters to write. Those of a replay were written before.

        Raises ValueError where the offsets do not go on from the last batch."""
        if self.settled is None:
            raise ValueError(f"{self.partition} has not begun")
        follows, last = self.last, self.last
        for item in parsed:
            if item.raw.offset <= last:
                raise ValueError(f"{self.partition}: offset {item.raw.offset} after {last}")
            last = item.raw.offset
        live = [item for item in parsed if item.raw.offset >= self.live_from]
        letters = [letter for item in live for letter in item.dead]
        for letter in letters:
            self.settled.hold(letter.raw.offset)
        for item in live:
            if item.record is not None:
                folded = (raw for raw in item.folded if raw.offset >= self.live_from)
                self._held[item.raw.offset] = (item.raw, *folded)
        fates = Counter(fate for item in live if (fate := _fate(item)) is not None)
        fates["consumed"] = len(live)
        records = tuple(item.record for item in parsed if item.record is not None)
        return self._send(follows, last, len(parsed), records, fates), letters

    def finish_replay(self) -> Batch:
        """An empty batch up to ``serve_from``: what lay before it was transaction markers, never delivered."""
        return self._send(self.last, self.serve_from - 1, 0, (), Counter())

    def _send(
        self, follows: int, last: int, consumed: int, records: tuple[Record, ...], fates: Counter[str]
    ) -> Batch:
        self._in_flight.append(_InFlight(last, consumed, fates))
        self.last = last
        return Batch(
            topic=self.partition.topic,
            partition=self.partition.partition,
            generation=self.generation,
            follows=follows,
            last=last,
            consumed=consumed,
            records=records,
        )

    def open_bars_due(self, ack: Ack) -> list[tuple[str, OpenBar]]:
        """Open bars that have to be saved before the floor of ``ack`` is committed; call it before
        ``acknowledge``."""
        assert self.settled is not None, "generations are given by begin()"
        if self.bars is None or self.settled.awaiting:
            return []
        # The floor of before: its windows are confirmed, so that it stands whatever is lost now.
        due = self.bars.due(self._needed)
        for _ in due:
            self.settled.hold(ack.last)
        return due

    def acknowledge(self, ack: Ack) -> list[DeadLetter]:
        """Apply an acknowledgement of this generation; dead letters for what the engine rejected. It is settled
        when they, and the windows that came with it, are confirmed."""
        assert self.settled is not None, "generations are given by begin()"
        for _ in ack.windows:
            self.settled.hold(ack.last)
        letters = []
        for rejected in ack.rejected:
            raws = self._held.get(rejected.offset, ())
            for raw in raws:
                letters.append(DeadLetter(raw, raw.value, rejected.reason, rejected.detail))
                self.settled.hold(raw.offset)
            if raws and rejected.reason != Reason.LATE:
                self.fates["dead_lettered"] += len(raws)
                self.fates["applied"] -= len(raws) - 1  # the folded ones, which passed for applied
        self.fates.update(applied=ack.applied, duplicates=ack.duplicates, late=ack.late)
        self.settled.acknowledge(ack.last, ack.floor if self.bars is None else self.bars.floor(ack.floor))
        self.acknowledged, self._needed = ack.last, ack.floor
        while self._in_flight and self._in_flight[0].last <= ack.last:
            self.fates.update(self._in_flight.popleft().fates)
        for offset in [offset for offset in self._held if offset <= ack.last]:
            del self._held[offset]
        self._resets_in_a_row = 0
        return letters

    def reset(self, now: float) -> None:
        """Start over in a new generation. Without an acknowledgement in between each try waits longer."""
        if self.state is StreamState.STREAMING:
            self._move(StreamState.WAITING)
        self._forget()
        if self._resets_in_a_row:
            self.retry_at = now + min(RETRY_FIRST_S * 2**self._resets_in_a_row, RETRY_MOST_S)
        self._resets_in_a_row += 1

    def revoke(self) -> Revoke | None:
        """The partition is no longer ours; the message for the engine where it knew of it."""
        known = self.state is StreamState.STREAMING
        self._move(StreamState.REVOKED)
        self._forget()
        return Revoke(*self.partition, self.generation) if known else None

    def _forget(self) -> None:
        self._in_flight.clear()
        self._held.clear()

    def _move(self, state: StreamState) -> None:
        if state not in _NEXT[self.state]:
            raise RuntimeError(f"{self.partition} cannot become {state.value} when {self.state.value}")
        self.state = state
