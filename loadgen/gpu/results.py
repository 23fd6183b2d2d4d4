"""What one run of ``loadgen.gpu`` measured, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Spread:
    """Of some repeats, in ms."""

    p50: float
    p90: float
    repeats: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        p50, p90 = np.percentile(seconds, (50, 90)) * 1e3
        return cls(float(p50), float(p90), len(seconds))


@dataclass(frozen=True, slots=True)
class Prefill:
    """Appends of several lengths at the context (HW-1): time of each, and the line through their p50."""

    lengths: dict[int, Spread]
    ms_per_token: float
    intercept_ms: float


@dataclass(frozen=True, slots=True)
class Noise:
    """Float noise of the gap (Eq. 11): the same tokens computed in another way. In logits, over `draws` entries.

    fused: commit and entry in one step, against the entry alone after it. chunks: the commit bar by bar. reused:
    the entry's last token alone, on cells that an earlier step left. `top1_changed` counts other answers.
    """

    draws: int
    fused: float
    chunks: float
    reused: float
    top1_changed: int

    @property
    def largest(self) -> float:
        return max(self.fused, self.chunks, self.reused)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of steps, each with its logits reduced to numbers on the host, as the engine waits for them.

    decode: one token appended (HW-2). launch: the part of it after which the host has nothing more to do; where
        it is nearly all, the device waits for the host.
    commit: three bars appended. preposition: the entry alone (T_pp, Eq. 6). fused: both in one step.
    cold: question and header as one branch (Eq. 2).
    fall_through: the same entry with all but its last token reused (Eq. 5, delta 0).
    fall_through_question: the same, where as many tokens as the question has are new.
    scan: one row of logits to top-1, gap and mass.
    copy: a whole context from one slab to another. truncate_us: the view of a shorter slab, which is all that a
        truncation is; in microseconds.
    """

    decode: Spread
    launch: Spread
    prefill: Prefill
    commit: Spread
    preposition: Spread
    fused: Spread
    cold: Spread
    fall_through: Spread
    fall_through_question: Spread
    scan: Spread
    copy: Spread
    truncate_us: float
    noise: Noise

    @property
    def restore_ms(self) -> float:
        """T_restore as the paper derives it: fall-through with delta 0, less a decode. Below 0 it is noise."""
        return self.fall_through.p50 - self.decode.p50

    @property
    def fused_extra_ms(self) -> float:
        """What a pre-position adds to the commit that it rides on."""
        return self.fused.p50 - self.commit.p50
