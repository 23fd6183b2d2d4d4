"""The confidence gate: whether a ready distribution may be served as the answer (Alg. 2, Eq. 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from stream_engine.decision.calibration import Knots, agreement
from stream_engine.decision.ready import ReadyDistribution, StateFlag


class FastAnswer(msgspec.Struct, frozen=True, array_like=True):
    """One member of the fast-answer set: the question class it answers and the word it stands for."""

    question_class: str
    word: str


class ClassGate(msgspec.Struct, frozen=True):
    """The gate of one question class: threshold ``tau`` in logits, and whether risk control keeps it open."""

    tau: float
    open: bool = True


class GateReason(Enum):
    """Why the gate fired, or the first test that it failed."""

    FIRED = "fired"
    WARMING_UP = "warming_up"
    NOT_IN_SET = "not_in_set"
    OTHER_CLASS = "other_class"
    CLOSED = "closed"
    GAP = "gap"
    NOISE = "noise"
    """The gap is within float noise of tau: two correct computations could decide differently."""


@dataclass(frozen=True, slots=True)
class GateDecision:
    """``word`` and ``question_class`` are those of top-1 whenever it is in the fast-answer set, fired or not;
    ``tau`` is None where no threshold applied. ``confidence`` is the calibrated probability of agreeing with the
    full path (0 to 1), None where that was not calibrated."""

    fires: bool
    reason: GateReason
    word: str | None
    question_class: str | None
    tau: float | None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """``classes`` maps a question class to its gate, ``answers`` a token id to its fast answer;
    ``noise`` is the measured float noise of a gap, in logits. ``calibration`` is the digest of the calibration,
    "" where there is none, and ``confidence`` its curves by class."""

    classes: Mapping[str, ClassGate]
    answers: Mapping[int, FastAnswer]
    noise: float
    calibration: str = ""
    confidence: Mapping[str, Knots] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ValueError(f"noise = {self.noise!r}: must be finite and not negative")
        for name, gate in self.classes.items():
            if math.isnan(gate.tau):
                raise ValueError(f"tau of class {name!r} is not a number")

    def decide(
        self,
        ready: ReadyDistribution,
        question_class: str | None,
        *,
        exact: bool = False,
        flags: StateFlag = StateFlag.NONE,
    ) -> GateDecision:
        """Alg. 2 for a question of ``question_class`` and a valid ready distribution.

        ``exact`` says that the question's token sequence is the pre-positioned one to the last token: the
        full path would compute the very same logits, so only the set test applies. Otherwise the answer must
        also belong to the question's class, that class must be open, and ``gap > tau`` by more than the noise.
        """
        answer = self.answers.get(ready.top1)
        policy = None if exact or question_class is None else self.classes.get(question_class)
        reason = self._reason(ready, question_class, policy, answer, exact, flags)
        return GateDecision(
            fires=reason is GateReason.FIRED,
            reason=reason,
            word=answer.word if answer else None,
            question_class=answer.question_class if answer else None,
            tau=policy.tau if policy else None,
            confidence=self._confidence(ready, question_class, answer, exact),
        )

    @property
    def certain(self) -> float | None:
        """Confidence of what is the full path's answer by construction: an exact entry's, or its own."""
        return 1.0 if self.calibration else None

    def _confidence(
        self, ready: ReadyDistribution, question_class: str | None, answer: FastAnswer | None, exact: bool
    ) -> float | None:
        if exact:
            return self.certain
        if answer is None or question_class is None or answer.question_class != question_class:
            return None
        return agreement(self.confidence.get(question_class, ()), ready.gap)

    def _reason(
        self,
        ready: ReadyDistribution,
        question_class: str | None,
        policy: ClassGate | None,
        answer: FastAnswer | None,
        exact: bool,
        flags: StateFlag,
    ) -> GateReason:
        if flags & StateFlag.WARMING_UP:
            return GateReason.WARMING_UP
        if not math.isfinite(ready.gap):
            return GateReason.GAP  # logits that are not numbers have no argmax to serve
        if answer is None:
            return GateReason.NOT_IN_SET
        if exact:
            return GateReason.FIRED
        if answer.question_class != question_class:
            return GateReason.OTHER_CLASS
        if policy is None or not policy.open:
            return GateReason.CLOSED
        if abs(ready.gap - policy.tau) <= self.noise:
            return GateReason.NOISE
        return GateReason.FIRED if ready.gap > policy.tau else GateReason.GAP
