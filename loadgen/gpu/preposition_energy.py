"""Energy of a pre-position (HW-6): a loop of nothing else, against the idle device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from stream_engine.util.energy import EnergyCounter

SETTLE_S = 2.0
"""An idle device is given this long to become one: its clocks and its meter lag behind."""
HIT_RATE = 0.5
"""h of Eq. 8 at rho = 1, as many queries as updates: rho / (1 + rho)."""


@dataclass(frozen=True, slots=True)
class PrepositionEnergy:
    """Watts of the whole device, idle and in a back-to-back loop of pre-positions."""

    source: str
    idle_w: float
    loop_w: float
    prepositions: int
    seconds_each: float

    @property
    def joules(self) -> float:
        """Of one pre-position, above idle."""
        return (self.loop_w - self.idle_w) * self.seconds_each

    @property
    def wasted_w(self) -> float:
        """Watts above idle that end in pre-positions which no query reads, at rho = 1: w of Eq. 8 is 1 - h."""
        return (1 - HIT_RATE) * (self.loop_w - self.idle_w)


def measure_energy(
    counter: EnergyCounter,
    preposition: Callable[[], object],
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> PrepositionEnergy:
    """`seconds` idle, then as long a loop. `preposition` returns when the device has done it."""
    sleep(min(SETTLE_S, seconds))
    idle_w, _, _ = _watts(counter, lambda: sleep(seconds), 0.0, clock)
    preposition()
    loop_w, count, passed = _watts(counter, preposition, seconds, clock)
    return PrepositionEnergy(
        source=counter.source, idle_w=idle_w, loop_w=loop_w, prepositions=count, seconds_each=passed / count
    )


def _watts(
    counter: EnergyCounter, work: Callable[[], object], seconds: float, clock: Callable[[], float]
) -> tuple[float, int, float]:
    """Mean watts while `work` runs again and again until `seconds` are over, how often it ran, and how long."""
    before, start, count = counter.joules(), clock(), 0
    while count == 0 or clock() - start < seconds:
        work()
        count += 1
    joules, passed = counter.joules() - before, clock() - start
    return joules / passed, count, passed
