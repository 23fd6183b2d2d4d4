"""Risk control's hand on the gate: when the evidence is against a class the gate moves, and everyone is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from stream_engine.decision.gate import ClassGate
from stream_engine.messages import Event, RiskChanged
from stream_engine.risk.monitor import RiskMonitor, WatchedClass
from stream_engine.state.live_gate import LiveGate
from stream_engine.state.publication import Publication

log = logging.getLogger(__name__)


class GateControl:
    """``emit`` is given the events. What the ``monitor`` remembers of an earlier life holds from the start."""

    def __init__(
        self, monitor: RiskMonitor, gate: LiveGate, publication: Publication, emit: Callable[[Event], None]
    ) -> None:
        self.monitor = monitor
        self._gate = gate
        self._publication = publication
        self._emit = emit
        if monitor.moved:
            self.apply(monitor.gates())

    @property
    def noise(self) -> float:
        """Of a gap, in logits."""
        return self._gate.now.noise

    def apply(self, classes: Mapping[str, ClassGate]) -> None:
        """Answers of this process and of every reader of the board obey at once."""
        self._gate.move(classes)
        self._publication.gate_moved()

    def advance(self, watched: WatchedClass) -> None:
        """The evidence has passed the threshold: the gate moves first, then everyone is told."""
        before, previous = watched.report(), watched.state
        self.monitor.advance(watched)
        self.apply(self.monitor.gates())
        gate = watched.gate
        event = RiskChanged(
            class_=watched.name,
            state=watched.state.value,
            previous=previous.value,
            tau=gate.tau,
            tau_before=before.tau,
            open=gate.open,
            budget=before.budget,
            checks=before.checks,
            false_accepts=before.false_accepts,
            lower=before.lower,
            upper=before.upper,
            evidence=before.evidence,
            threshold=before.threshold,
        )
        log.warning(
            "class %s: %d of %d checked fast answers differ from the full path (budget %g): %s, tau %g",
            watched.name,
            before.false_accepts,
            before.checks,
            before.budget,
            watched.state.value,
            gate.tau,
        )
        self._emit(event)
