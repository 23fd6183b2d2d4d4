"""The float noise of a gap: one decision point computed in the ways that a step may compute it.

The same sum in another order ends in other last digits. A gap is compared with tau, so two correct computations
can decide differently where it is within this noise of it; such an answer goes the full path.
"""

from __future__ import annotations

import numpy as np

from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import Runner
from stream_engine.model.forward.step import Branch, Segment
from stream_engine.model.frame import BarArrays, RegionFrame
from stream_engine.model.render.rendering import Builder

MARGIN = 2.0
"""The largest difference of so few decision points is not the largest of all."""

SERIES = 3


def measured_noise(runner: Runner, builder: Builder, precision: float) -> float:
    """Noise of a gap in logits, on a few random walks of one window each, in the first session's cells (they must
    be free). ``precision`` is the relative step of the logits' type, below which nothing shows: two ways may agree
    to the last digit by chance."""
    worst = 0.0
    for seed in range(SERIES):
        found = _ways(runner, builder, _walk(builder, seed))
        gaps = [distribution.gap for distribution in found]
        step = 2 * precision * max(abs(distribution.top1_logit) for distribution in found)
        worst = max(worst, max(gaps) - min(gaps), step)
    return MARGIN * worst


def _ways(runner: Runner, builder: Builder, tokens: tuple[int, ...]) -> list[Distribution]:
    """The header's distribution: in one step with all tokens, fused with the last bar, alone, and resumed."""
    entry, size, last = builder.generic_entry, len(tokens), builder.tokens_per_bar
    branch = Branch(entry, size)
    segments = (
        Segment(0, 0, tokens, (branch,)),
        Segment(0, size - last, tokens[size - last :], (branch,)),
        Segment(0, size, branches=(branch,)),
        Segment(0, size, branches=(Branch(entry[-1:], size + len(entry), len(entry) - 1, size),)),
    )
    return [runner.run([segment])[0].branches[0] for segment in segments]


def _walk(builder: Builder, seed: int) -> tuple[int, ...]:
    close = 100.0 + np.cumsum(np.random.default_rng(seed).normal(size=builder.profile.window_bars))
    times = np.arange(len(close), dtype=np.int64) * 60_000_000
    bars = BarArrays(times, close, close + 0.5, close - 0.5, close, np.ones(len(close)))
    frame = RegionFrame.fit("NOISE", bars)
    return (*builder.prefix, *builder.anchor(frame), *builder.bars(frame, bars).ravel().tolist())
