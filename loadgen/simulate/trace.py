"""A session trace: when the updates of one session came, and when it was asked. Drawn, or recorded."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadgen.simulate.gaps import Floats, Gaps

COLUMNS = ("at", "session", "event")
EVENTS = UPDATE, QUERY = ("update", "query")
LONGEST = 1e12
"""Seconds: what lies beyond is a time in another unit."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Both in seconds, in order. From the first update to the last: every interval between updates is whole, so
    the end of the trace cuts none and biases no share. ``outside`` counts the queries before and after."""

    updates: Floats
    queries: Floats
    outside: int = 0

    @classmethod
    def of(cls, updates: Floats, queries: Floats) -> Trace:
        """A query at the instant of an update comes after it. Raises ValueError where no interval is whole."""
        updates, queries = np.sort(updates), np.sort(queries)
        if len(updates) < 2:
            raise ValueError("a session needs two updates or more: a pre-position is settled by the next update")
        if updates[0] == updates[-1]:
            raise ValueError("all its updates are of one instant")
        inside = queries[(queries >= updates[0]) & (queries < updates[-1])]
        return cls(updates, inside, len(queries) - len(inside))

    @property
    def intervals(self) -> int:
        return len(self.updates) - 1

    @property
    def seconds(self) -> float:
        return float(self.updates[-1] - self.updates[0])


def drawn(seed: int, session: int, updates: Gaps, queries: Gaps, intervals: int) -> Trace:
    """A trace with this many intervals between updates. The updates depend on seed and session alone."""
    gaps = updates.draw(np.random.default_rng((seed, session, 0)), intervals)
    return asked(np.concatenate(([0.0], np.cumsum(gaps))), queries, np.random.default_rng((seed, session, 1)))


def asked(updates: Floats, queries: Gaps, rng: np.random.Generator) -> Trace:
    """These updates, with queries drawn between the first and the last of them."""
    start, end = float(updates[0]), float(updates[-1])
    times = np.array([start + queries.draw_rest(rng)])
    while times[-1] < end:
        count = 64 + int(1.1 * (end - times[-1]) / queries.mean)
        times = np.concatenate((times, times[-1] + np.cumsum(queries.draw(rng, count))))
    return Trace(updates, times[times < end])


def read_traces(file: Path) -> dict[str, Trace]:
    """The traces of a CSV file, by session: columns at (seconds), session, event (update or query); more are left
    alone, and lines need no order. Raises ValueError, with the line, for what is no such file, and OSError."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: {event: [] for event in EVENTS})
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.DictReader(lines)
        try:
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise ValueError(f"no column {missing[0]}: the first line names {', '.join(COLUMNS)}")
            for row in rows:
                found[row["session"]][_event(row)].append(_time(row))
        except (ValueError, csv.Error) as error:  # a wrong encoding is a ValueError too
            raise ValueError(f"{file}, line {max(1, rows.line_num)}: {error}") from error
    traces = {}
    for session, times in found.items():
        try:
            traces[session] = Trace.of(np.array(times[UPDATE], float), np.array(times[QUERY], float))
        except ValueError as error:
            raise ValueError(f"{file}, session {session}: {error}") from error
    if not traces:
        raise ValueError(f"{file}: no events")
    return traces


def _event(row: dict[str, str | None]) -> str:
    if row["event"] not in EVENTS:
        raise ValueError(f"event {row['event']!r}: update or query")
    return str(row["event"])


def _time(row: dict[str, str | None]) -> float:
    try:
        at = float(row["at"] or "")
    except ValueError:
        at = math.nan
    if not abs(at) < LONGEST:
        raise ValueError(f"at {row['at']!r}: a time in seconds")
    return at
