"""Which offset may be committed, and where a rebuild starts. Pure policy: no Kafka, no clock."""

from __future__ import annotations

import heapq
import json
from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal

OffsetReset = Literal["earliest", "latest", "fail"]


class OffsetResetRequired(RuntimeError):
    """A partition has no usable committed offset and ``kafka.offset_reset`` is ``fail``: a person decides."""


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """What is committed for a partition: the next offset to consume, and where a rebuild would start."""

    offset: int
    floor: int

    def metadata(self) -> str:
        """The text that travels with the offset commit."""
        return json.dumps({"floor": self.floor}, separators=(",", ":"))

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> CommitPoint:
        """The inverse. A commit by another tool has other metadata, or none: its floor is the offset itself."""
        try:
            floor = json.loads(metadata or "{}").get("floor")
        except (ValueError, AttributeError, RecursionError):
            floor = None
        usable = isinstance(floor, int) and not isinstance(floor, bool) and 0 <= floor <= offset
        return cls(offset, floor if usable else offset)


class SettledOffsets:
    """One partition in one generation: what the engine has acknowledged, minus what still has to be written.

    The commit point is the lowest contiguous settled offset; it never goes back. A record is settled when the
    engine has acknowledged its batch and everything that is written because of it (dead letters, windows) is
    confirmed by the broker. An acknowledgement's floor counts once all of the acknowledgement is settled: it may
    stand on windows that came with it."""

    def __init__(self, start: int, live_from: int) -> None:
        self._next = start
        self._committable = live_from
        self._floor = min(start, live_from)
        self._floors: deque[tuple[int, int]] = deque()
        self._awaiting: Counter[int] = Counter()
        self._lowest: list[int] = []

    @property
    def point(self) -> CommitPoint:
        """What may be committed now."""
        return CommitPoint(self._committable, min(self._floor, self._committable))

    @property
    def awaiting(self) -> int:
        """What is being written and not confirmed by the broker yet."""
        return self._awaiting.total()

    def hold(self, offset: int) -> None:
        """Something is written because of this record: it is not settled before ``release``."""
        if not self._awaiting[offset]:
            heapq.heappush(self._lowest, offset)
        self._awaiting[offset] += 1

    def release(self, offset: int) -> None:
        """One write because of this record is confirmed. Raises ValueError where none was awaited."""
        if not self._awaiting[offset]:
            del self._awaiting[offset]
            raise ValueError(f"no write of offset {offset} is awaited")
        self._awaiting[offset] -= 1
        if not self._awaiting[offset]:
            del self._awaiting[offset]
        self._advance()

    def acknowledge(self, last: int, floor: int) -> None:
        """The engine has applied everything up to ``last``; its live windows need nothing before ``floor``."""
        if last + 1 > self._next:
            self._next = last + 1
            self._floors.append((last + 1, floor))
        self._advance()

    def _advance(self) -> None:
        while self._lowest and self._lowest[0] not in self._awaiting:
            heapq.heappop(self._lowest)
        settled = min(self._next, self._lowest[0]) if self._lowest else self._next
        while self._floors and self._floors[0][0] <= settled:
            self._floor = self._floors.popleft()[1]
        self._committable = max(self._committable, settled)


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """``[start, live_from)`` refills windows silently; from ``live_from`` on records are new. ``warning`` says
    what was lost or chosen, for the log; ``incomplete`` that records which the windows need are not read
    again. No session is served before everything up to ``serve_from`` is applied. ``keeps_windows`` is False
    where windows in the compacted topic may be of another life of this topic. ``chosen``: no usable offset
    is committed, so the start has to be, lest a restart chooses again and passes over what came between."""

    start: int
    live_from: int
    warning: str | None = None
    incomplete: bool = False
    keeps_windows: bool = True
    serve_from: int = 0
    chosen: bool = False


def plan_rebuild(
    committed: CommitPoint | None,
    beginning: int,
    end: int,
    max_rebuild_records: int,
    offset_reset: OffsetReset,
) -> RebuildPlan:
    """Where to start reading a partition that holds the offsets ``[beginning, end)``.

    Raises OffsetResetRequired where no committed offset is usable and ``offset_reset`` is ``fail``."""
    if committed is not None and beginning <= committed.offset <= end:
        bounded = max(committed.floor, committed.offset - max_rebuild_records)
        start = max(bounded, beginning)
        warning = None
        if start > committed.floor:
            cause = "max_rebuild_records" if start == bounded else "retention"
            warning = (
                f"the rebuild starts at {start}, not at {committed.floor} ({cause}): windows may be incomplete"
            )
        return RebuildPlan(start, committed.offset, warning, incomplete=warning is not None, serve_from=end)

    if committed is None:
        found = "no committed offset"
    elif committed.offset < beginning:
        found = (
            f"committed offset {committed.offset} has aged out: {beginning - committed.offset} records are gone"
        )
    else:
        found = f"committed offset {committed.offset} lies behind the end {end}: the topic was cut or made anew"
    if offset_reset == "fail" and (committed is not None or beginning < end):  # an empty log leaves no choice
        raise OffsetResetRequired(
            f"{found}; the partition holds {beginning}..{end}. kafka.offset_reset is 'fail': set it to 'earliest' "
            "or 'latest' for one start, or set the group's offset by hand (kafka-consumer-groups --reset-offsets)"
        )
    start = beginning if offset_reset == "earliest" else end
    warning = f"{found}; kafka.offset_reset = {offset_reset}: starts at {start}"
    aged_out = committed is not None and committed.offset < beginning
    incomplete = committed is not None
    return RebuildPlan(
        start=start,
        live_from=start,
        warning=warning,
        incomplete=incomplete,
        keeps_windows=aged_out,
        serve_from=end,
        chosen=True,
    )
