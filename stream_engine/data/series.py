"""Bar series to calibrate on: recorded ones, and simulated ones that no training run has drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stream_engine.decision.calibration import SeriesFacts
from stream_engine.model.frame import BarArrays
from stream_engine.util.timestamps import to_the_second

STREAM = 0xCA11B
"""Second word of the seed: calibration draws series of its own, whatever seed a training run had."""


@dataclass(frozen=True, slots=True)
class Series:
    """Bars of one instrument, oldest first: what it is called in reports, its symbol, where it was read from."""

    name: str
    symbol: str
    bars: BarArrays

    def sha256(self) -> str:
        """Hash of the bars as they are, without their names."""
        total = hashlib.sha256()
        bars = self.bars
        for column in (bars.time_us, bars.open, bars.high, bars.low, bars.close, bars.volume):
            total.update(np.ascontiguousarray(column).tobytes())
        return total.hexdigest()

    def facts(self, windows: int) -> SeriesFacts:
        first, last = (to_the_second(int(time)) for time in (self.bars.time_us[0], self.bars.time_us[-1]))
        return SeriesFacts(name=self.name, sha256=self.sha256(), windows=windows, first=first, last=last)


def distinct(series: Iterable[Series]) -> list[Series]:
    """The series, without those whose bars came before under another name."""
    found: dict[str, Series] = {}
    for candidate in series:
        found.setdefault(candidate.sha256(), candidate)
    return list(found.values())


def simulated_series(seed: int, count: int, bars: int) -> list[Series]:
    """``count`` independent instruments of ``bars`` bars each, as the model is trained on."""
    from stream_engine.data.simulate import simulate
    from stream_engine.data.wordings import draw_symbol

    rng = np.random.default_rng([seed, STREAM])
    drawn = simulate(rng, count, bars)
    return [Series("simulated", draw_symbol(rng), drawn.series(row)) for row in range(count)]
