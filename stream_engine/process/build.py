"""From settings to a running engine: model, cell budget, gate, board."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stream_engine.board.meta import board_meta
from stream_engine.board.writer import BoardWriter
from stream_engine.config import Config, ConfigError, EngineSettings, KafkaSettings, RiskSettings
from stream_engine.decision.calibration import CALIBRATION_FILE, Calibration, CalibrationError, Identity, mismatch
from stream_engine.decision.gap_noise import measured_noise
from stream_engine.decision.gate import ClassGate, FastAnswer, Gate
from stream_engine.engine.engine import Engine
from stream_engine.messages import Event
from stream_engine.model.forward.step import Segment
from stream_engine.model.hub.files import ModelFiles, ModelNotFound, find_model
from stream_engine.model.hub.weights import weights_sha256
from stream_engine.model.render.rendering import Builder, load_builder
from stream_engine.process.desks.own_standing import OwnStandingDesk
from stream_engine.process.desks.standing_desk import Send, StandingDesk
from stream_engine.process.desks.topic_standing import TopicStandingDesk
from stream_engine.risk.memory import RiskMemory
from stream_engine.risk.monitor import RiskMonitor
from stream_engine.session.cell_budget import BudgetShape
from stream_engine.state.publication import BoardPublication, Publication, Unpublished

if TYPE_CHECKING:
    from stream_engine.model.backbones.model_runner import ModelRunner

ENTRY_CELLS = 256
"""Cells of a share that are planned for entries, where ``engine.total_cells`` is left to us."""

API_WORKERS = 16
"""Workers that the board has room for at least: further API processes may be started beside a running engine."""

GATE_NOISE = 1e-3
"""Least noise of a gap, in logits. The largest difference seen between logits of the tree forward and of a plain
one in float32 is 4e-5; a gap is a difference of two. The margin covers other CPUs' kernels."""


def model_files(settings: EngineSettings) -> ModelFiles:
    """The configured model's files, fetched from the hub where need be. Raises ConfigError where they cannot be
    had."""
    try:
        return find_model(settings.model, settings.adapter)
    except ModelNotFound as error:
        name = "adapter" if error.adapter else "model"
        raise ConfigError(f"engine.{name} = {getattr(settings, name)!r}: {error}") from error


def model_directory(settings: EngineSettings) -> Path:
    """Folder that the model's calibration lies in: its own, or its adapter's. Raises as `model_files`."""
    return model_files(settings).home


def model_builder(settings: EngineSettings, files: ModelFiles) -> Builder:
    """The model's renderer. Raises ConfigError where profile and tokenizer do not fit."""
    try:
        return load_builder(files)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"engine.model = {settings.model!r}: {error}") from error


def budget_shape(settings: EngineSettings, builder: Builder) -> BudgetShape:
    """Cells of a share: prefix, anchor and the largest region; the entries; the second slab."""
    profile = builder.profile
    head = len(builder.prefix) + builder.max_anchor_tokens
    live = head + profile.region_bars * builder.tokens_per_bar
    reserve = head + profile.window_bars * builder.tokens_per_bar
    total = settings.total_cells or settings.max_sessions * (live + ENTRY_CELLS + reserve)
    try:
        shape = BudgetShape(total, settings.max_sessions, reserve, len(builder.prefix))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if shape.headroom(live) < 0:
        needed = settings.max_sessions * (live + reserve)
        raise ConfigError(
            f"engine.total_cells = {settings.total_cells}: engine.max_sessions = {settings.max_sessions} sessions "
            f"need at least {needed} cells; raise the first or lower the second"
        )
    return shape


def model_identity(settings: EngineSettings, builder: Builder) -> Identity:
    """What the model's gaps depend on, as it is served with these settings."""
    profile = builder.profile
    words: dict[str, dict[str, tuple[int, ...]]] = {}
    for token, (kind, word) in sorted(builder.answers.items()):
        forms = words.setdefault(kind, {})
        forms[word] = (*forms.get(word, ()), token)
    return Identity(
        model=profile.name,
        weights_sha256=weights_sha256(*model_files(settings).weights),
        profile_digest=profile.digest(),
        prompt=f"{builder.decode(builder.prefix)}...{builder.decode(builder.generic_entry)}",
        fast_answers=words,
        window_bars=profile.window_bars,
        region_bars=profile.region_bars,
        dtype=settings.dtype,
        quantization=settings.quantization,
    )


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
    return Gate(classes, answers, noise, calibration.digest(), curves)


def build_monitor(
    settings: RiskSettings, gate: Gate, calibration: Calibration | None, identity: Identity, board: Path
) -> RiskMonitor:
    """The watch over a gate. What it has found and decided is remembered for this very gate of this very model:
    other weights, an adapter or another precision make it another one, with a calibration or without. And for
    this deployment: its ``board`` is no other running engine's, and the same after a restart."""
    name = f"{identity.digest()}/{gate.calibration}/{sorted(gate.classes.items())}"
    memory = RiskMemory(settings.state_file, str(board.absolute()), name)
    return RiskMonitor(settings, gate.classes, calibration, memory)


def load_runner(settings: EngineSettings, builder: Builder, shape: BudgetShape) -> ModelRunner:
    """Load the weights (the slow part) and make the frozen prefix resident."""
    import torch

    from stream_engine.model.backbones.loader import load_backbone
    from stream_engine.model.backbones.model_runner import ModelRunner

    torch.set_num_threads(settings.threads or max(1, (os.cpu_count() or 2) - 1))
    files = model_files(settings)
    try:
        backbone = load_backbone(
            files.directory,
            total_cells=shape.cells,
            device=settings.device,
            dtype=settings.dtype,
            quantization=None if settings.quantization == "none" else settings.quantization,
            adapter=files.adapter,
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        also = f", engine.adapter = {settings.adapter!r}" if settings.adapter else ""
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"engine.model = {settings.model!r}{also}: it cannot be loaded: {reason}") from error
    runner = ModelRunner(backbone, sorted(builder.answers))
    runner.run([Segment(shape.prefix_base, 0, builder.prefix)])
    return runner


def gate_noise(runner: ModelRunner, builder: Builder) -> float:
    """Noise of a gap of the loaded model, in its own number type, before any session has cells."""
    return max(GATE_NOISE, measured_noise(runner, builder, runner.precision))


def build_engine(
    settings: EngineSettings, emit: Callable[[Event], None] = lambda event: None, board: Config | None = None
) -> Engine:
    """An engine on the configured model. ``board`` names the settings of the ready board to publish on;
    without it the engine is for use in this process only."""
    builder = model_builder(settings, model_files(settings))
    shape = budget_shape(settings, builder)
    calibration = load_calibration(settings, builder)
    runner = load_runner(settings, builder, shape)
    gate = build_gate(builder, calibration, gate_noise(runner, builder))
    publication: Publication = Unpublished()
    risk = None
    if board is not None:
        identity = calibration.identity if calibration else model_identity(settings, builder)
        risk = build_monitor(board.risk, gate, calibration, identity, board.board.path)
        writer = BoardWriter.create(
            board.board.path,
            board_meta(builder.profile, gate),
            board.board.max_sessions,
            board.board.slots,
            max(board.api.workers, API_WORKERS),
            board.board.lease_s,
        )
        publication = BoardPublication(writer, builder.profile, gate)
    return Engine(settings, builder, runner, shape, gate, publication, emit, risk)


def build_standing_desk(settings: KafkaSettings, engine: Engine, send: Send) -> StandingDesk:
    """Standing queries of an engine: kept in ``kafka.standing_topic``, or by the engine where it names none."""
    return TopicStandingDesk(engine, send) if settings.standing_topic else OwnStandingDesk(engine, send)
