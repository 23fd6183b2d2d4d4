"""The watched risk of the fast path: how often checked fast answers differ, and what follows.

Ids and counts only. A class of questions moves ``OPEN -> RAISED -> CLOSED``, each time when the evidence that its
false-accept rate is above the budget has passed the threshold; the detector starts anew after a move. CLOSED ends
only with another calibration.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import msgspec

from stream_engine.config.risk import RiskSettings
from stream_engine.decision.calibration import Calibration
from stream_engine.decision.gate import ClassGate
from stream_engine.messages import CalibrationFacts, ClassRisk
from stream_engine.risk.checked_points import DecisionPoints
from stream_engine.risk.memory import KeptClass, RiskMemory
from stream_engine.risk.sequential import ChangeDetector, rate_bounds

log = logging.getLogger(__name__)

DEFAULT_BUDGET = 0.02
BOUNDS_LEVEL = 0.05
"""The bounds of the running rate hold at all times together with probability 0.95."""


class RiskState(Enum):
    OPEN = "OPEN"
    """The calibrated tau applies."""
    RAISED = "RAISED"
    """Tau is ``risk.tau_step`` above it."""
    CLOSED = "CLOSED"
    """That did not help: no fast path for questions of this class."""


_NEXT = {RiskState.OPEN: RiskState.RAISED, RiskState.RAISED: RiskState.CLOSED}


@dataclass(slots=True)
class WatchedClass:
    """One question class. ``checks`` and ``false_accepts`` are those under the present tau; ``past_checks`` and
    ``past_false_accepts`` came before it. ``points`` outlive a move: what was checked under one tau and is
    asked again under the next would find the same, and one fault would close the class."""

    name: str
    configured: ClassGate
    settings: RiskSettings
    state: RiskState = RiskState.OPEN
    checks: int = 0
    false_accepts: int = 0
    past_checks: int = 0
    past_false_accepts: int = 0
    points: DecisionPoints = field(default_factory=DecisionPoints)
    detector: ChangeDetector = field(init=False)

    def __post_init__(self) -> None:
        self._restart()

    @property
    def gate(self) -> ClassGate:
        """What the state makes of the configured gate."""
        raised = 0.0 if self.state is RiskState.OPEN else self.settings.tau_step
        is_open = self.configured.open and self.state is not RiskState.CLOSED
        return msgspec.structs.replace(self.configured, tau=self.configured.tau + raised, open=is_open)

    def record(self, differs: bool) -> bool:
        """One more checked fast answer; True where the evidence has passed the threshold: then ``advance``."""
        self.checks += 1
        self.false_accepts += differs
        return self.detector.observe(differs) and self.state in _NEXT

    def advance(self) -> None:
        """The next state, with counts and detector of its own: they are about another tau now."""
        self.state = _NEXT[self.state]
        self.past_checks += self.checks
        self.past_false_accepts += self.false_accepts
        self.checks = self.false_accepts = 0
        self._restart()

    def kept(self) -> KeptClass:
        """All that a restart must not lose."""
        return KeptClass(
            state=self.state.value,
            tau=self.gate.tau,
            budget=self.settings.budget,
            checks=self.checks,
            false_accepts=self.false_accepts,
            past_checks=self.past_checks,
            past_false_accepts=self.past_false_accepts,
            sums=list(self.detector.sums),
            points=list(self.points),
        )

    def restore(self, kept: KeptClass) -> None:
        """Become the class that was kept. Evidence of another tau or budget (``risk.*`` was changed meanwhile) is
        of the past, as it is after a move."""
        self.state = RiskState(kept.state)
        self.points = DecisionPoints(kept.points)
        self.past_checks, self.past_false_accepts = kept.past_checks, kept.past_false_accepts
        same = (kept.tau, kept.budget) == (self.gate.tau, self.settings.budget)
        if same and self.detector.resume(kept.sums):
            self.checks, self.false_accepts = kept.checks, kept.false_accepts
        else:
            self.past_checks += kept.checks
            self.past_false_accepts += kept.false_accepts

    def report(self) -> ClassRisk:
        """As ``GET /v1/calibration`` shows it."""
        lower, upper = rate_bounds(self.checks, self.false_accepts, self.settings.budget, BOUNDS_LEVEL)
        gate = self.gate
        return ClassRisk(
            class_=self.name,
            state=self.state.value,
            open=gate.open,
            tau=gate.tau,
            tau_configured=self.configured.tau,
            budget=self.settings.budget,
            checks=self.checks,
            false_accepts=self.false_accepts,
            rate=self.false_accepts / self.checks if self.checks else None,
            lower=lower,
            upper=upper,
            evidence=self.detector.evidence,
            threshold=self.detector.threshold,
            checks_total=self.past_checks + self.checks,
            false_accepts_total=self.past_false_accepts + self.false_accepts,
        )

    def _restart(self) -> None:
        self.detector = ChangeDetector(self.settings.budget, self.settings.level, self.settings.horizon)


class RiskMonitor:
    """All classes of a gate, and the checks that could not be made, by reason.

    Without ``risk.budget`` the budget is what the calibration was made for. ``memory`` keeps the classes over
    restarts, with their evidence: one that is closed stays closed until its gate is another one.
    """

    def __init__(
        self,
        settings: RiskSettings,
        classes: Mapping[str, ClassGate],
        calibration: Calibration | None = None,
        memory: RiskMemory | None = None,
    ) -> None:
        budget = settings.budget or (calibration.r_max if calibration else DEFAULT_BUDGET)
        self.settings = replace(settings, budget=budget)
        self.classes = {name: WatchedClass(name, gate, self.settings) for name, gate in classes.items()}
        self.dropped: Counter[str] = Counter()
        self.facts = _facts(calibration) if calibration else None
        self._memory = memory
        for name, kept in (memory.load() if memory else {}).items():
            if name in self.classes:
                self.classes[name].restore(kept)
                if self.classes[name].state is not RiskState.OPEN:
                    log.warning("class %s: %s, as before the restart (risk.state_file)", name, kept.state)
        self._kept = self._snapshot()

    @property
    def moved(self) -> bool:
        """Some class's gate is not the configured one."""
        return any(watched.state is not RiskState.OPEN for watched in self.classes.values())

    def advance(self, watched: WatchedClass) -> None:
        """The class's evidence has passed the threshold."""
        watched.advance()
        self.keep()

    def keep(self) -> None:
        """Write down what has changed, for the next start. To be called now and then, and at the end."""
        kept = self._snapshot()
        if self._memory is not None and kept != self._kept and self._memory.save(kept):
            self._kept = kept

    def _snapshot(self) -> dict[str, KeptClass]:
        return {name: watched.kept() for name, watched in self.classes.items()}

    def gates(self) -> dict[str, ClassGate]:
        """The gate's classes as the states make them."""
        return {name: watched.gate for name, watched in self.classes.items()}


def _facts(calibration: Calibration) -> CalibrationFacts:
    return CalibrationFacts(
        digest=calibration.digest(),
        created=calibration.created,
        r_max=calibration.r_max,
        delta=calibration.delta,
        chosen={name: watched.chosen for name, watched in calibration.classes.items()},
        certified={name: watched.certified for name, watched in calibration.classes.items()},
    )
