"""What the engine needs of a model: run a step, copy cells. The tensors stay behind this line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stream_engine.model.step import Segment


@dataclass(frozen=True, slots=True)
class Logits:
    """One next-token distribution, reduced (see ``ready.ReadyDistribution`` for the units)."""

    top1: int
    top2: int
    gap: float
    top1_logit: float
    log_partition: float
    fast_set_mass: float


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """Distributions after a segment's branches, in order."""

    branches: tuple[Logits, ...]


class Runner(Protocol):
    """A model as the engine sees it."""

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        """One forward pass over all segments."""
        ...

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy ``count`` cells from cell ``source`` to cell ``target``."""
        ...
