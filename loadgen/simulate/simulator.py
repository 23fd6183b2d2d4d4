"""One session's trace through Algorithms 1 and 2: which pre-positions are skipped, late, read or wasted, and what
each query costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadgen.simulate.closed_form import cold_ms, fall_ms, fast_ms, preposition_ms
from loadgen.simulate.costs import Costs
from loadgen.simulate.trace import Trace


@dataclass(frozen=True, slots=True)
class SimulatedBudget:
    """``cells`` of all sessions together, shared equally. A session's data grows by ``update_tokens`` an update up
    to ``region_tokens``; the update that would go over it drops the older half first, as a sliding window does."""

    cells: int
    update_tokens: int
    region_tokens: int

    def __post_init__(self) -> None:
        if not 0 < 2 * self.update_tokens <= self.region_tokens:
            raise ValueError(
                f"a region of {self.region_tokens} tokens keeps no half for an update of {self.update_tokens}"
            )

    def skipped(self, updates: int, entry: int, sessions: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of each update in order, whether its entry has no room in the session's share: L_entry > B (Alg. 1)."""
        kept = self.region_tokens // 2
        first = self.region_tokens // self.update_tokens
        later = (self.region_tokens - kept) // self.update_tokens
        at = np.arange(1, updates + 1)
        grown = at * self.update_tokens
        after_drop = kept + ((at - first - 1) % later + 1) * self.update_tokens
        state = np.where(at <= first, grown, after_drop)
        return np.asarray(entry > self.cells // sessions - state)


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of one session's pre-positions and queries.

    Of the updates some pre-positions were ``skipped`` for want of cells, some ``overtaken`` by the next update
    before they were ready, and the others ``completed``; of these ``hits`` were read. ``settled_ms`` sums, over
    completed ones, what Eq. 9 weighs: the latency of the query that read it, or L_cold where none did.
    ``query_ms`` sums the latencies of all queries, ``busy_ms`` the accelerator's time for queries and
    pre-positions.
    """

    seconds: float
    updates: int
    skipped: int
    overtaken: int
    completed: int
    hits: int
    queries: int
    fast: int
    fall: int
    settled_ms: float
    query_ms: float
    busy_ms: float

    @property
    def cold(self) -> int:
        return self.queries - self.fast - self.fall


def simulate(
    trace: Trace,
    costs: Costs,
    rng: np.random.Generator,
    delta: int = 0,
    budget: SimulatedBudget | None = None,
    sessions: int = 1,
) -> Tally:
    """A pre-position starts with its update and takes T_pp (Eq. 6). A query that comes before it is ready is cold,
    and the pre-position, of the lowest priority, ends that much later. Once ready it is read by every query until
    the next update: on the fast path where the gate fires, which is drawn once for a distribution, else by
    falling through with ``delta`` tokens to process. One session's work does not delay another's."""
    entry, intervals = costs.entry_tokens, trace.intervals
    cold, fast, fall = cold_ms(costs, entry), fast_ms(costs), fall_ms(costs, entry, delta)
    needed_s, cold_s = preposition_ms(costs, entry) / 1e3, cold / 1e3
    skipped = np.zeros(intervals, bool) if budget is None else budget.skipped(intervals, entry, sessions)
    fires = rng.random(intervals) < costs.gate_fires

    of = np.searchsorted(trace.updates, trace.queries, side="right") - 1  # the interval of each query
    first = np.searchsorted(trace.queries, trace.updates[:-1], side="left")  # the first query of each interval
    nth = np.arange(len(of)) - first[of]
    # The nth query is cold if it comes before the pass has ended that the n before it have put off. From the first
    # that does not, none is.
    late = trace.queries >= trace.updates[of] + needed_s + nth * cold_s
    late_so_far = np.concatenate(([0], np.cumsum(late)))
    before = late_so_far[1:] == late_so_far[first[of]]
    put_off = np.bincount(of[before], minlength=intervals)
    ready = trace.updates[:-1] + needed_s + put_off * cold_s
    completed = ~skipped & (ready <= trace.updates[1:])

    read = ~before & completed[of]
    hit = np.zeros(intervals, bool)
    hit[of[read]] = True
    fired = read & fires[of]
    served = np.where(fires, fast, fall)
    fast_count, fall_count = int(fired.sum()), int(read.sum() - fired.sum())
    cold_count = len(of) - fast_count - fall_count
    return Tally(
        seconds=trace.seconds,
        updates=intervals,
        skipped=int(skipped.sum()),
        overtaken=int((~skipped & ~completed).sum()),
        completed=int(completed.sum()),
        hits=int(hit.sum()),
        queries=len(of),
        fast=fast_count,
        fall=fall_count,
        settled_ms=float(served[hit].sum() + cold * (completed.sum() - hit.sum())),
        query_ms=fast * fast_count + fall * fall_count + cold * cold_count,
        busy_ms=fall * fall_count + cold * cold_count + needed_s * 1e3 * float(completed.sum()),
    )
