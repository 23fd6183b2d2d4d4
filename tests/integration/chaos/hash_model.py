"""A model whose answer is a hash of the whole token path, read back from its cells; and the engine process on it.

A wrong token, cell or version shows in the answer, and a process with this model starts within a second. Run as a
program it is ``stream-engine``, with the weights replaced.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from stream_engine.cli import main as cli
from stream_engine.config.engine import EngineSettings
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Segment, lay_out
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process import build
from stream_engine.session.cell_budget import BudgetShape

STEP_S = 0.002
"""A step takes its time, so that a kill may hit between the commits of one batch."""


class HashRunner:
    precision = 0.0
    """Its numbers are exact."""

    def __init__(self, builder: TokenBuilder, shape: BudgetShape) -> None:
        self._builder = builder
        self._cells = [-1] * shape.cells
        self._cells[shape.prefix_base :] = builder.prefix

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        lay_out(segments)  # the real layout's own checks: collisions, overlaps
        time.sleep(STEP_S)
        return [self._run(segment) for segment in segments]

    def _run(self, segment: Segment) -> SegmentResult:
        base, cells = segment.base, self._cells
        cells[base + segment.length : base + segment.live_end] = segment.append
        live = cells[base : base + segment.live_end]
        logits = []
        for branch in segment.branches:
            reused = [cells[cell] for cell in segment.cells(branch.reused_cell, branch.reused)]
            for cell, token in zip(segment.cells(branch.cell, len(branch.tokens)), branch.tokens, strict=True):
                cells[cell] = token
            logits.append(predict(self._builder, [*live, *reused, *branch.tokens]))
        return SegmentResult(tuple(logits))

    def copy(self, source: int, target: int, count: int) -> None:
        self._cells[target : target + count] = self._cells[source : source + count]


def predict(builder: TokenBuilder, path: Sequence[int]) -> Distribution:
    """Top-1 is one of the trend's words, the gap 0.00 to 9.99."""
    number = int.from_bytes(hashlib.blake2b(repr(list(path)).encode(), digest_size=8).digest(), "little")
    words = sorted(token for token, (kind, _) in builder.answers.items() if kind == "trend")
    return Distribution(words[number % len(words)], 0, (number >> 8) % 1000 / 100, 5.0, 6.0, 0.9)


def _load_runner(settings: EngineSettings, builder: TokenBuilder, shape: BudgetShape) -> HashRunner:
    return HashRunner(builder, shape)


if __name__ == "__main__":
    build.load_runner = _load_runner  # type: ignore[assignment, attr-defined]
    cli.main()
