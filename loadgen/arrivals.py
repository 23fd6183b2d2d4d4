"""When updates and queries are due: Poisson processes, drawn before the run so that a seed reproduces them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import numpy as np


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """``at`` is in seconds from the start of the run; ``session`` is an index."""

    at: float
    session: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Both in order of time."""

    updates: tuple[Arrival, ...]
    queries: tuple[Arrival, ...]

    @property
    def seconds(self) -> float:
        return self.updates[-1].at


def poisson(rng: np.random.Generator, rate: float) -> Iterator[float]:
    """Times of a Poisson process of ``rate`` per second, without end: gaps are independent and exponential."""
    now = 0.0
    while True:
        now += float(rng.exponential(1 / rate))
        yield now


def schedule(seed: int, rho: float, sessions: int, updates_per_second: float, seconds: float) -> Schedule:
    """``sessions`` independent pairs of processes: updates at ``updates_per_second`` each, queries ``rho`` times
    as often (rho of section 2.3).

    A session ends with its first update at or after ``seconds``, and its queries with that. So every interval
    between two updates is whole; and because that update is a stopping time, the share of intervals with a query
    is not biased by where the run ends (Wald's identity), as it would be by cutting at ``seconds``.

    The updates depend on the seed alone, not on rho."""
    updates: list[Arrival] = []
    queries: list[Arrival] = []
    for session in range(sessions):
        times = _through(poisson(np.random.default_rng((seed, session, 0)), updates_per_second), seconds)
        updates += [Arrival(at, session) for at in times]
        asked = poisson(np.random.default_rng((seed, session, 1)), rho * updates_per_second)
        queries += [Arrival(at, session) for at in takewhile(partial(operator.gt, times[-1]), asked)]
    return Schedule(tuple(sorted(updates)), tuple(sorted(queries)))


def _through(times: Iterator[float], end: float) -> Sequence[float]:
    """All up to and including the first that is not before ``end``."""
    taken = [next(times)]
    while taken[-1] < end:
        taken.append(next(times))
    return taken
