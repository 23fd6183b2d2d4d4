"""What one run measured, and how it follows from counts and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.counters import Counters
from loadgen.simulate.closed_form import expected_latency, hit_rate
from stream_engine.util.intervals import wilson

FAST, FALLTHROUGH, COLD = PATHS = ("fast", "fallthrough", "cold")


@dataclass(frozen=True, slots=True)
class Answered:
    """One answered query. ``client_ms`` counts from the intended send time, so that a stall shows in every query
    that was due meanwhile; ``late_ms`` is the part of it before the request was written."""

    path: str
    client_ms: float
    server_ms: float
    late_ms: float


@dataclass(frozen=True, slots=True)
class Times:
    """Of some queries, in ms."""

    p50: float
    p90: float
    p99: float
    mean: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Times:
        p50, p90, p99 = np.percentile(values, (50, 90, 99))
        return cls(float(p50), float(p90), float(p99), float(np.mean(values)))


@dataclass(frozen=True, slots=True)
class PathTimes:
    """Queries of one path: as the client saw them, and the service's own ``latency_us``."""

    count: int
    client: Times
    server: Times

    @classmethod
    def by_path(cls, answered: Sequence[Answered]) -> dict[str, PathTimes]:
        """Paths that no query took are left out."""
        found = {}
        for path in PATHS:
            own = [answer for answer in answered if answer.path == path]
            if own:
                found[path] = cls(
                    len(own),
                    Times.of([answer.client_ms for answer in own]),
                    Times.of([answer.server_ms for answer in own]),
                )
        return found


@dataclass(frozen=True, slots=True)
class Phase:
    """One rho. Shares are None where nothing was counted that they are of."""

    rho: float
    """As asked for."""
    rho_realised: float | None
    """Answered queries / commits: updates that wait together become one commit."""
    seconds: float
    updates: int
    commits: int
    queries: int
    errors: dict[str, int]
    """Queries without an answer, by HTTP status or by what failed."""
    completed: int
    skipped: int
    hits: int
    wasted: int
    hit_rate: float | None
    hit_rate_low: float | None
    hit_rate_high: float | None
    """Wilson 95 % interval."""
    hit_rate_closed_form: float | None
    """rho / (1 + rho) of the realised rho (Eq. 8)."""
    wasted_rate: float | None
    gate_fire_rate: float | None
    """g of Eq. 9: queries whose gate fired / queries that read a valid ready distribution on the board."""
    ready_rate: float | None
    """Queries that read a valid ready distribution on the board / answered queries."""
    expected_ms: float | None
    """Eq. 9 on the measured h, g and mean client latencies of the paths."""
    mean_ms: float | None
    """Mean client latency of all answered queries."""
    late: Times | None
    """This generator's own lateness, part of every client latency."""
    paths: dict[str, PathTimes]


def summarise(
    rho: float,
    seconds: float,
    updates: int,
    answered: Sequence[Answered],
    errors: Mapping[str, int],
    counted: Counters,
    baseline: Mapping[str, PathTimes],
) -> Phase:
    """``counted`` is the change of the service's counters. ``baseline`` stands in, in Eq. 9, for a path that no
    query of this phase took."""
    settled = counted.hits + counted.wasted
    low, high = wilson(counted.hits, settled)
    realised = _share(len(answered), counted.commits)
    paths = PathTimes.by_path(answered)
    hit, fires = _share(counted.hits, settled), _share(counted.fired, counted.read)
    return Phase(
        rho=rho,
        rho_realised=realised,
        seconds=seconds,
        updates=updates,
        commits=counted.commits,
        queries=len(answered) + sum(errors.values()),
        errors=dict(errors),
        completed=counted.completed,
        skipped=counted.skipped,
        hits=counted.hits,
        wasted=counted.wasted,
        hit_rate=hit,
        hit_rate_low=low if settled else None,
        hit_rate_high=high if settled else None,
        hit_rate_closed_form=None if realised is None else hit_rate(realised),
        wasted_rate=_share(counted.wasted, settled),
        gate_fire_rate=fires,
        ready_rate=_share(counted.read, len(answered)),
        expected_ms=_expected_ms(hit, fires, paths, baseline),
        mean_ms=float(np.mean([answer.client_ms for answer in answered])) if answered else None,
        late=Times.of([answer.late_ms for answer in answered]) if answered else None,
        paths=paths,
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _expected_ms(
    hit: float | None, fires: float | None, paths: Mapping[str, PathTimes], baseline: Mapping[str, PathTimes]
) -> float | None:
    """Eq. 9, where every part of it that counts was measured; a path that no query took is taken from `baseline`.

    The equation's fall-through resumes behind the generic entry. Here a question stands before the header and
    shares nothing with it, so after a gate miss the first question on a version is cold and only one like it,
    later on the same version, falls through: that term is the mean of the full path as the two came.
    """
    if hit is None:
        return None
    fires = fires or 0.0
    fast, cold, full = (
        _mean(paths, *names) or _mean(baseline, *names) for names in ((FAST,), (COLD,), (COLD, FALLTHROUGH))
    )
    cold = cold or full
    if (hit < 1 and cold is None) or (hit > 0 and ((fires > 0 and fast is None) or (fires < 1 and full is None))):
        return None
    return expected_latency(hit, fires, fast or 0.0, full or 0.0, cold or 0.0)


def _mean(paths: Mapping[str, PathTimes], *names: str) -> float | None:
    """Mean client latency of all queries of some paths."""
    taken = [paths[name] for name in names if name in paths]
    count = sum(times.count for times in taken)
    return sum(times.count * times.client.mean for times in taken) / count if count else None
