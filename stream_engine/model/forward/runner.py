"""What the engine needs of a model: run a step, copy cells. The tensors stay behind this line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.step import Segment


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """Distributions after a segment's branches, in order."""

    branches: tuple[Distribution, ...]


class Runner(Protocol):
    """A model as the engine sees it."""

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        """One forward pass over all segments."""
        ...

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy ``count`` cells from cell ``source`` to cell ``target``."""
        ...
