"""Partitions this engine owns: fencing, order, and the offset up to which everything is applied. Ids only.

A partition's batches are taken in order, but their records settle per session; the applied offset moves
over batches whose every record is settled.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from stream_engine.messages import Ack, Assign, Batch, Record, Refused, Rejected, Window
from stream_engine.session.session import Source
from stream_engine.state.dormant import DormantSessions
from stream_engine.state.floors import Floors

MAX_REMEMBERED = 10_000
"""Rejections that a partition remembers. A consumer lets far fewer dead letters wait for their confirmation."""


class PartitionState(Enum):
    REPLAYING = "REPLAYING"
    """Windows are being refilled, or not yet as far as an earlier life may have been; sessions are not served."""
    LIVE = "LIVE"


@dataclass(slots=True)
class OpenBatch:
    """A batch whose records are not all settled; ``unsettled`` counts those. The others count its live records:
    ``applied`` those that went through a commit, also the ``late`` ones, of which no bar was taken."""

    last: int
    unsettled: int
    rejected: list[Rejected] = field(default_factory=list)
    applied: int = 0
    duplicates: int = 0
    late: int = 0


@dataclass(slots=True)
class Partition:
    """``applied`` is the next offset to apply; ``taken`` the last offset of the newest batch taken;
    ``live_from`` where the replay ends, ``serve_from`` where service begins. ``sessions`` are those fed by this
    partition, ``floors`` what a rebuild of them needs, ``deleted`` those whose window has to go from the compacted
    topic. ``rejected`` are rejections by
    offset: a consumer may die before their dead letters are written, and its successor needs them again.
    ``claimed`` are keys of which only trades of an open bar have come. ``dormant`` are the sessions that sleep;
    ``waking`` those of them whose window has been asked for, with the records that wait for it."""

    source: Source
    generation: int
    applied: int
    taken: int
    live_from: int
    serve_from: int
    state: PartitionState
    open: deque[OpenBatch] = field(default_factory=deque)
    sessions: set[str] = field(default_factory=set)
    floors: Floors = field(default_factory=Floors)
    deleted: list[str] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    dormant: DormantSessions = field(default_factory=DormantSessions)
    waking: dict[str, list[tuple[Record, OpenBatch]]] = field(default_factory=dict)
    rejected: dict[int, Rejected] = field(default_factory=dict)
    records: int = 0
    gap_end: int | None = None

    @property
    def settled(self) -> int:
        """The offset after the last one whose batch and all before it are settled, acknowledged or not."""
        settled = self.applied
        for batch in self.open:
            if batch.unsettled:
                break
            settled = max(settled, batch.last + 1)
        return settled

    def remember(self, rejected: Iterable[Rejected]) -> None:
        self.rejected.update((refusal.offset, refusal) for refusal in rejected)
        while len(self.rejected) > MAX_REMEMBERED:
            del self.rejected[next(iter(self.rejected))]


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of the batches that are settled since the last acknowledgement. ``last`` is the last offset of
    the last one; ``applied`` counts live records of which a bar was taken, ``late`` those of which none was."""

    last: int
    rejected: tuple[Rejected, ...]
    applied: int
    duplicates: int
    late: int


class PartitionTable:
    """Owned partitions by source."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self._partitions: dict[Source, Partition] = {}
        self.sizes: dict[str, int] = {}
        """Partitions that each topic has, as its consumers say."""

    def all(self) -> tuple[Partition, ...]:
        return tuple(self._partitions.values())

    @property
    def filling(self) -> bool:
        """Sessions may still come out of the log: not every partition is assigned yet, or a replay goes on."""
        owned = self._partitions.values()
        if not owned or any(partition.state is PartitionState.REPLAYING for partition in owned):
            return True
        counts = Counter(partition.source.topic for partition in owned)
        return any(counts[topic] < size for topic, size in self.sizes.items())

    def get(self, source: Source) -> Partition | None:
        return self._partitions.get(source)

    def applied(self, partition: int, topic: str | None = None) -> int | None:
        """Next offset to apply of that partition number, of ``topic`` where one is named."""
        for owned in self._partitions.values():
            if owned.source.partition == partition and topic in (None, owned.source.topic):
                return owned.applied
        return None

    def assign(self, message: Assign) -> Partition | None:
        """Take a partition, or fence the earlier life of one that is still owned (its sessions stay, and
        records it has applied come again as duplicates). What another engine applied meanwhile, before
        ``live_from``, is a replay: the partition starts anew. None when a newer generation owns it already."""
        source = Source(message.topic, message.partition)
        owned = self._partitions.get(source)
        if owned is not None and owned.generation >= message.generation:
            return None
        if owned is not None and message.start <= owned.applied and message.live_from <= owned.applied:
            owned.generation = message.generation
            owned.taken = message.start - 1
            owned.live_from = message.live_from
            for batch in owned.open:
                owned.remember(batch.rejected)
            owned.open.clear()
            owned.waking.clear()  # the records come again, questions ask again
            for offset in [offset for offset in owned.rejected if offset < message.live_from]:
                del owned.rejected[offset]
            return owned
        serve_from = max(message.live_from, message.serve_from)
        state = PartitionState.LIVE if serve_from <= message.start else PartitionState.REPLAYING
        fresh = Partition(
            source=source,
            generation=message.generation,
            applied=message.start,
            taken=message.start - 1,
            live_from=max(message.live_from, message.start),
            serve_from=serve_from,
            state=state,
        )
        self._partitions[source] = fresh
        return fresh

    def revoke(self, source: Source, generation: int) -> Partition | None:
        """Give a partition up; None when a newer generation owns it."""
        owned = self._partitions.get(source)
        if owned is None or owned.generation > generation:
            return None
        return self._partitions.pop(source)

    def take(self, batch: Batch) -> Partition | Refused:
        """The partition, when the batch is of its generation and follows the last one taken."""
        owned = self._partitions.get(Source(batch.topic, batch.partition))
        if owned is None:
            return self._refuse(batch, None, "this engine does not own the partition")
        if owned.generation != batch.generation:
            return self._refuse(batch, None, f"the partition is of generation {owned.generation} by now")
        if owned.taken != batch.follows:
            return self._refuse(batch, owned.taken, f"the last batch taken ends at offset {owned.taken}")
        owned.taken = batch.last
        owned.records += batch.consumed
        return owned

    def settle(self, owned: Partition) -> Settled | None:
        """Move ``applied`` over the settled batches at the front; None where there is none."""
        done: list[OpenBatch] = []
        while owned.open and owned.open[0].unsettled == 0:
            done.append(owned.open.popleft())
        if not done:
            return None
        late = sum(batch.late for batch in done)
        settled = Settled(
            last=done[-1].last,
            rejected=tuple(rejected for batch in done for rejected in batch.rejected),
            applied=sum(batch.applied for batch in done) - late,
            duplicates=sum(batch.duplicates for batch in done),
            late=late,
        )
        owned.applied = max(owned.applied, settled.last + 1)
        owned.remember(settled.rejected)
        return settled

    def acknowledge(
        self, owned: Partition, settled: Settled, windows: tuple[Window, ...], floor: int | None
    ) -> Ack:
        """What the consumer is told: with the ``windows`` that are due, and the oldest offset that is needed for a
        rebuild once they are written (``floor`` is the lowest of the sessions')."""
        return Ack(
            boot_id=self.boot_id,
            topic=owned.source.topic,
            partition=owned.source.partition,
            generation=owned.generation,
            last=settled.last,
            floor=owned.applied if floor is None else min(floor, owned.applied),
            rejected=settled.rejected,
            windows=windows,
            applied=settled.applied,
            duplicates=settled.duplicates,
            late=settled.late,
        )

    def sleeping(self, session: str) -> Partition | None:
        """The partition that feeds the session, where that sleeps."""
        return next((owned for owned in self._partitions.values() if session in owned.dormant), None)

    def serves(self, source: Source | None) -> bool:
        """Whether the partition of a session has come as far as an earlier life may have answered from."""
        owned = self._partitions.get(source) if source is not None else None
        return owned is None or owned.state is PartitionState.LIVE

    def _refuse(self, batch: Batch, expected: int | None, reason: str) -> Refused:
        return Refused(
            boot_id=self.boot_id,
            topic=batch.topic,
            partition=batch.partition,
            generation=batch.generation,
            expected_follows=expected,
            reason=reason,
        )
