"""What the engine needs of a model: run a step, copy cells. The tensors stay behind this line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stream_engine.model.forward.step import Segment


@dataclass(frozen=True, slots=True)
class Logits:
    """What is kept of one next-token distribution.

    top1, top2: ids of the two largest logits; gap: their difference in logits (Eq. 11); top1_logit: the
    largest logit; log_partition: log of the summed exponentials of all logits; fast_set_mass: probability of
    the fast-answer set, 0 to 1.
    """

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
