"""The same operations among few objects and among many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadgen.keys.market import Cost, Market


@dataclass(frozen=True, slots=True)
class MarketSizes:
    """How many live objects the operations are measured among, and how often."""

    few_sessions: int = 50
    many_sessions: int = 50_000
    few_queries: int = 10
    many_queries: int = 10_000
    waiting: int = 60_000
    repeats: int = 50


@dataclass(frozen=True, slots=True)
class FlatRow:
    """One operation among ``few`` and ``many`` objects, and how many those are."""

    operation: str
    few: Cost
    many: Cost
    objects: tuple[int, int]

    @property
    def ratio(self) -> float:
        return self.many.ms / self.few.ms


def measure(sizes: MarketSizes, kv_memory: str, told: Callable[[str], None]) -> tuple[FlatRow, ...]:
    """One engine that grows, so that both ends of a ratio are of one run."""
    market = Market(kv_memory)
    sessions = sizes.few_sessions, sizes.many_sessions
    told(f"{sizes.few_sessions} keys")
    market.grow(sizes.few_sessions)
    market.commit(sizes.repeats)  # warm
    few_commit = market.commit(sizes.repeats)
    few_waiting = market.waiting_step(min(sizes.few_sessions, sizes.waiting))
    market.register(sizes.few_queries)
    few_delete = market.delete(sizes.repeats)
    told(f"{sizes.many_sessions} keys")
    market.grow(sizes.many_sessions)
    many_commit = market.commit(sizes.repeats)
    told(f"{sizes.waiting} records wait")
    many_waiting = market.waiting_step(sizes.waiting)
    told(f"{sizes.many_queries} standing queries")
    market.register(sizes.many_queries)
    many_delete = market.delete(sizes.repeats)
    return (
        FlatRow("a commit, until it is acknowledged", few_commit, many_commit, sessions),
        FlatRow("a standing query is deleted", few_delete, many_delete, (sizes.few_queries, sizes.many_queries)),
        FlatRow(
            "the longest step while records wait", few_waiting, many_waiting, (sizes.few_sessions, sizes.waiting)
        ),
    )
