"""What is kept of one next-token distribution: the few numbers that serving needs of a row of logits."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Distribution:
    """``top1`` and ``top2`` are token ids; ``gap`` is the difference of their logits (Eq. 11);
    ``top1_logit`` and ``log_partition`` (the log of the summed exponentials of all logits) are in nats;
    ``fast_set_mass`` is the probability of the whole fast-answer set, 0 to 1.
    """

    top1: int
    top2: int
    gap: float
    top1_logit: float
    log_partition: float
    fast_set_mass: float

    @property
    def confidence(self) -> float:
        """Probability of ``top1``, 0 to 1."""
        return math.exp(min(0.0, self.top1_logit - self.log_partition))
