"""Energy of a pre-position: a meter and a clock that both go by what is run."""

from __future__ import annotations

import pytest

from loadgen.gpu.preposition_energy import measure_energy

IDLE_W, BUSY_W = 100.0, 340.0
EACH_S = 0.125
WOKEN_W, SLOW_S = 900.0, 60.0
"""The first pre-position after a pause: clocks come up first."""


class Device:
    """Draws power for as long as it idles or works."""

    source = "test"

    def __init__(self) -> None:
        self.now = 0.0
        self.drawn = 0.0
        self.slept: list[float] = []
        self.done = 0

    def joules(self) -> float:
        return self.drawn

    def close(self) -> None:
        raise AssertionError("whoever opened the counter closes it")

    def clock(self) -> float:
        return self.now

    def pass_time(self, seconds: float, watts: float) -> None:
        self.now += seconds
        self.drawn += seconds * watts

    def sleep(self, seconds: float) -> None:
        # What is left of the work before it draws power until the device has settled.
        self.pass_time(seconds, IDLE_W if self.slept else 700.0)
        self.slept.append(seconds)

    def preposition(self) -> None:
        self.done += 1
        self.pass_time(SLOW_S, WOKEN_W) if self.done == 1 else self.pass_time(EACH_S, BUSY_W)


@pytest.mark.parametrize("seconds", [4.0, 0.5])
def test_energy_is_the_loop_above_idle(seconds: float) -> None:
    device = Device()
    found = measure_energy(device, device.preposition, seconds, clock=device.clock, sleep=device.sleep)
    assert device.slept == [min(2.0, seconds), seconds]
    assert (found.source, found.idle_w, found.loop_w) == ("test", IDLE_W, BUSY_W)
    assert (found.prepositions, found.seconds_each) == (seconds / EACH_S, EACH_S)
    assert device.done == found.prepositions + 1
    assert found.joules == (340 - 100) * 0.125
    assert found.wasted_w == (340 - 100) / 2  # at rho = 1 every second one is read


def test_a_preposition_longer_than_the_time_for_it_is_measured_once() -> None:
    device = Device()
    found = measure_energy(device, device.preposition, 0.01, clock=device.clock, sleep=device.sleep)
    assert (found.prepositions, found.seconds_each, found.loop_w) == (1, EACH_S, BUSY_W)
