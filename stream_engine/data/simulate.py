"""Simulated price series of many volatilities, regimes, tick sizes, idle and gappy instruments.

The model learns from these alone: it is never trained on a recorded series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_engine.model.frame import BarArrays

Floats = NDArray[np.float64]

BAR_SECONDS = (1, 5, 10, 15, 30, 60, 300, 900, 1800, 3600, 14_400, 86_400)
_BURN_IN = 24


@dataclass(frozen=True, slots=True)
class SimulatedBars:
    """Columns of [series, bars]; `close` is float64 as a feed would send it."""

    time_us: NDArray[np.int64]
    open: Floats
    high: Floats
    low: Floats
    close: Floats
    volume: Floats

    def series(self, row: int) -> BarArrays:
        """One series as the renderer takes it."""
        return BarArrays(
            self.time_us[row], self.open[row], self.high[row], self.low[row], self.close[row], self.volume[row]
        )


def simulate(rng: np.random.Generator, series: int, bars: int) -> SimulatedBars:
    """Draw `series` independent instruments of `bars` bars each.

    Returns are Student-t (3 to 12 degrees of freedom) under clustered and trending volatility, with drift, a
    drift that may switch inside the series, pull to a mean or serial correlation, rare jumps, idle bars and ticks
    from a tenth of to four standard deviations. Prices span nine decades; some instruments sit around zero.
    """
    length = bars + _BURN_IN
    shape = (series, length)
    volatility = _volatility(rng, series, length)
    degrees = rng.uniform(3.0, 12.0, (series, 1))
    noise = rng.standard_t(np.broadcast_to(degrees, shape)) / np.sqrt(degrees / (degrees - 2.0))
    moves = noise * volatility + _drift(rng, series, length)
    jumps = _chance(rng, series, 0.15) & (rng.random(shape) < 0.02)
    moves = moves + jumps * rng.normal(0.0, 7.0, shape)
    idle = rng.random(shape) < _idle_share(rng, series)
    moves = np.where(idle, 0.0, moves)
    path = _integrate(rng, moves, idle)
    gap = _chance(rng, series, 0.3) * rng.normal(0.0, 0.4, shape) * volatility
    opened = np.concatenate([path[:, :1], path[:, :-1]], axis=1) + np.where(idle, 0.0, gap)
    reach = np.abs(rng.normal(0.0, 1.0, (2, *shape))) * volatility * rng.uniform(0.1, 1.2, (series, 1))
    high = np.maximum(opened, path) + np.where(idle, 0.0, reach[0])
    low = np.minimum(opened, path) - np.where(idle, 0.0, reach[1])
    volume = _volume(rng, moves, volatility, idle)
    opened, high, low, close = _priced(rng, opened, high, low, path)
    closes_only = _chance(rng, series, 0.06)
    high = np.where(closes_only, close, high)
    low = np.where(closes_only, close, low)
    opened = np.where(closes_only, close, opened)
    step = rng.choice(np.array(BAR_SECONDS), (series, 1)) * 1_000_000
    time_us = 1_600_000_000_000_000 + step * np.arange(bars, dtype=np.int64)[None, :]
    cut = slice(_BURN_IN, None)
    return SimulatedBars(
        time_us=time_us,
        open=opened[:, cut],
        high=high[:, cut],
        low=low[:, cut],
        close=close[:, cut],
        volume=volume[:, cut],
    )


def _chance(rng: np.random.Generator, series: int, probability: float) -> NDArray[np.bool_]:
    return rng.random((series, 1)) < probability


def _volatility(rng: np.random.Generator, series: int, length: int) -> Floats:
    """Relative volatility: a first-order log process, a slope over the series, a level that may shift once."""
    memory = rng.uniform(0.7, 0.98, series)
    spread = rng.uniform(0.0, 0.8, series) * (rng.random(series) < 0.75)
    shocks = rng.normal(0.0, 1.0, (series, length))
    log_vol = np.empty((series, length))
    state = rng.normal(0.0, 1.0, series)
    for at in range(length):
        state = memory * state + np.sqrt(1.0 - memory**2) * shocks[:, at]
        log_vol[:, at] = state
    slope = rng.normal(0.0, 0.5, (series, 1)) * _chance(rng, series, 0.5)
    shift = rng.normal(0.0, 0.8, (series, 1)) * _chance(rng, series, 0.25)
    later = np.arange(length)[None, :] >= rng.integers(_BURN_IN, length, (series, 1))
    return np.asarray(np.exp(spread[:, None] * log_vol + slope * np.linspace(-1.0, 1.0, length) + shift * later))


def _drift(rng: np.random.Generator, series: int, length: int) -> Floats:
    """Constant drift, and in some series another one from a random bar on."""
    before = rng.normal(0.0, 0.12, (series, 1)) * _chance(rng, series, 0.6)
    after = rng.normal(0.0, 0.25, (series, 1))
    switch = rng.integers(_BURN_IN, length, (series, 1))
    switches = _chance(rng, series, 0.4) & (np.arange(length)[None, :] >= switch)
    return np.where(switches, after, before)


def _idle_share(rng: np.random.Generator, series: int) -> Floats:
    kind = rng.random((series, 1))
    light, heavy = rng.uniform(0.05, 0.4, (series, 1)), rng.uniform(0.4, 0.97, (series, 1))
    return np.where(kind < 0.5, 0.0, np.where(kind < 0.88, light, heavy))


def _integrate(rng: np.random.Generator, moves: Floats, idle: NDArray[np.bool_]) -> Floats:
    """Sum the moves with serial correlation or a pull to a mean, each in some of the series."""
    series, length = moves.shape
    echo = rng.uniform(-0.5, 0.4, series) * (rng.random(series) < 0.25)
    pull = rng.uniform(0.02, 0.5, series) * (rng.random(series) < 0.2)
    path = np.empty_like(moves)
    at_price, last = np.zeros(series), np.zeros(series)
    for at in range(length):
        step = moves[:, at] + echo * last - pull * at_price
        step = np.where(idle[:, at], 0.0, step)
        at_price, last = at_price + step, step
        path[:, at] = at_price
    return path


def _volume(rng: np.random.Generator, moves: Floats, volatility: Floats, idle: NDArray[np.bool_]) -> Floats:
    """Volume as instruments of many kinds have it; zero in most idle bars; nan throughout for some instruments.

    In log: a noise of memory and heavy tails whose deviation spans 0.1 (daily equities) to 2 (thin minutes), a
    slope, a level that shifts (a session opens or closes), a shape over the session or the week, bursts that die
    down, and more of it on larger moves and in wilder times. Some instruments have empty bars, some whole lots.
    """
    series, length = moves.shape
    shape = (series, length)
    memory = rng.uniform(0.0, 0.95, series)
    spread = np.exp(rng.uniform(np.log(0.1), np.log(1.8), (series, 1)))
    degrees = np.broadcast_to(rng.uniform(3.0, 12.0, (series, 1)), shape)
    shocks = rng.standard_t(degrees) + _chance(rng, series, 0.3) * (rng.exponential(1.0, shape) - 1.0)
    burst_size = rng.exponential(1.5, shape) * (rng.random(shape) < 0.04) * _chance(rng, series, 0.35)
    decay = rng.uniform(0.2, 0.9, series)
    state, burst = np.zeros(series), np.zeros(series)
    noise, bursts = np.empty(shape), np.empty(shape)
    for at in range(length):
        state = memory * state + np.sqrt(1.0 - memory**2) * shocks[:, at]
        burst = decay * burst + burst_size[:, at]
        noise[:, at], bursts[:, at] = state, burst
    log_volume = spread * np.clip(noise, -6.0, 6.0) + bursts
    log_volume += rng.normal(0.0, 0.5, (series, 1)) * _chance(rng, series, 0.6) * np.linspace(-1.0, 1.0, length)
    shift = rng.normal(0.0, 1.2, (series, 1)) * _chance(rng, series, 0.25)
    log_volume += shift * (np.arange(length)[None, :] >= rng.integers(_BURN_IN, length, (series, 1)))
    period = np.exp(rng.uniform(np.log(5.0), np.log(300.0), (series, 1)))
    phase = (np.arange(length)[None, :] / period + rng.random((series, 1))) % 1.0
    smile = rng.uniform(0.0, 1.5, (series, 1)) * (2.0 * np.abs(phase - 0.5)) ** rng.uniform(1.0, 6.0, (series, 1))
    log_volume += smile * _chance(rng, series, 0.4)
    log_volume += rng.uniform(0.0, 0.5, (series, 1)) * np.log1p(np.abs(moves))
    log_volume += rng.uniform(0.0, 0.8, (series, 1)) * _chance(rng, series, 0.5) * np.log(volatility)
    volume = np.exp(log_volume) * np.exp(rng.uniform(0.0, 15.0, (series, 1)))
    volume = np.where(_chance(rng, series, 0.4), np.rint(volume), volume)
    volume = np.where(idle, np.where(_chance(rng, series, 0.6), 0.0, volume * 0.1), volume)
    empty = rng.random(shape) < rng.uniform(0.0, 0.6, (series, 1)) * _chance(rng, series, 0.12)
    return np.where(_chance(rng, series, 0.12), np.nan, np.where(empty, 0.0, volume))


def _priced(rng: np.random.Generator, *columns: Floats) -> tuple[Floats, ...]:
    """Scale unit-variance columns to prices and round them to the instrument's tick."""
    series = columns[0].shape[0]
    coarse = np.exp(rng.uniform(np.log(0.1), np.log(4.0), (series, 1)))
    fine = np.exp(rng.uniform(np.log(1e-4), np.log(0.1), (series, 1)))
    tick = np.where(_chance(rng, series, 0.4), coarse, fine)
    reference = np.exp(rng.uniform(np.log(1e-4), np.log(1e5), (series, 1)))
    deviation = reference * np.exp(rng.uniform(np.log(3e-5), np.log(4e-2), (series, 1)))
    reference = np.where(_chance(rng, series, 0.05), deviation * rng.normal(0.0, 20.0, (series, 1)), reference)
    base = np.rint(reference / (deviation * tick))
    return tuple((base + np.rint(column / tick)) * (deviation * tick) for column in columns)
