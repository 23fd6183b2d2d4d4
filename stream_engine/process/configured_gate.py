"""The configured gate: taus from calibration or profile, the float noise, and the watch over its risk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stream_engine.config.engine import EngineSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.config.rules import ConfigError
from stream_engine.decision.calibration import CALIBRATION_FILE, Calibration, CalibrationError, Identity, mismatch
from stream_engine.decision.gap_noise import measured_noise
from stream_engine.decision.gate import ClassGate, FastAnswer, Gate
from stream_engine.model.render.rendering import Builder
from stream_engine.process.configured_model import model_directory, model_identity
from stream_engine.risk.memory import RiskMemory
from stream_engine.risk.monitor import RiskMonitor

if TYPE_CHECKING:
    from stream_engine.model.backbones.model_runner import ModelRunner

GATE_NOISE = 1e-3
"""Least noise of a gap, in logits. The largest difference seen between logits of the tree forward and of a plain
one in float32 is 4e-5; a gap is a difference of two. The margin covers other CPUs' kernels."""


def load_calibration(settings: EngineSettings, builder: Builder) -> Calibration | None:
    """The configured calibration; None where it is switched off, or left out and none lies beside the model.

    Raises ConfigError where it cannot be read, or was made for something else than what is served: names what.
    """
    if settings.calibration == "none":
        return None
    beside = model_directory(settings) / CALIBRATION_FILE
    if not settings.calibration and not beside.is_file():
        return None
    path = Path(settings.calibration).expanduser() if settings.calibration else beside
    try:
        calibration = Calibration.load(path)
    except CalibrationError as error:
        raise ConfigError(f"engine.calibration: {error}") from error
    differs = mismatch(calibration.identity, model_identity(settings, builder))
    if differs:
        raise ConfigError(
            f"engine.calibration = {str(path)!r}: it was made for another model: {'; '.join(differs)}. "
            "Make a new one (stream-engine calibrate), or set engine.calibration = 'none'"
        )
    return calibration


def build_gate(builder: Builder, calibration: Calibration | None = None, noise: float = GATE_NOISE) -> Gate:
    """The gate of a model: tau per class from its calibration, else its profile; every answer word as the
    fast-answer set; ``noise`` of a gap in logits."""
    profile = builder.profile
    classes = {answer_class.name: ClassGate(profile.tau[answer_class.name]) for answer_class in profile.classes}
    if calibration is not None:
        classes |= {name: ClassGate(chosen.tau, chosen.open) for name, chosen in calibration.classes.items()}
    answers = {token: FastAnswer(*answer) for token, answer in builder.answers.items()}
    if calibration is None:
        return Gate(classes, answers, noise)
    curves = {name: chosen.confidence for name, chosen in calibration.classes.items() if chosen.confidence}
    return Gate(classes=classes, answers=answers, noise=noise, calibration=calibration.digest(), confidence=curves)


def gate_noise(runner: ModelRunner, builder: Builder) -> float:
    """Noise of a gap of the loaded model, in its own number type, before any session has cells."""
    return max(GATE_NOISE, measured_noise(runner, builder, runner.precision))


def build_monitor(
    settings: RiskSettings, gate: Gate, calibration: Calibration | None, identity: Identity, board: Path
) -> RiskMonitor:
    """The watch over a gate. What it has found and decided is remembered for this very gate of this very model:
    other weights, an adapter or another precision make it another one, with a calibration or without. And for
    this deployment: its ``board`` is no other running engine's, and the same after a restart."""
    name = f"{identity.digest()}/{gate.calibration}/{sorted(gate.classes.items())}"
    memory = RiskMemory(settings.state_file, str(board.absolute()), name)
    return RiskMonitor(settings, gate.classes, calibration, memory)
