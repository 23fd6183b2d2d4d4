"""From settings to a running engine: its parts put together."""

from __future__ import annotations

from collections.abc import Callable

from stream_engine.board.meta import board_meta
from stream_engine.board.writer import BoardWriter
from stream_engine.config.config import Config
from stream_engine.config.engine import EngineSettings
from stream_engine.config.kafka import KafkaSettings
from stream_engine.engine.engine import Engine
from stream_engine.messages import Event
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_gate import build_gate, build_monitor, gate_noise, load_calibration
from stream_engine.process.configured_model import load_runner, model_builder, model_files, model_identity
from stream_engine.process.desks.own_standing import OwnStandingDesk
from stream_engine.process.desks.standing_desk import Send, StandingDesk
from stream_engine.process.desks.topic_standing import TopicStandingDesk
from stream_engine.state.engine_state import new_state
from stream_engine.state.live_gate import LiveGate
from stream_engine.state.publication import BoardPublication

API_WORKERS = 16
"""Workers that the board has room for at least: further API processes may be started beside a running engine."""

LEAST_BOARD = 4096
"""Sessions and decision points that a board has room for, where the settings leave it to us."""


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
    live = LiveGate(gate)
    publication = risk = None
    if board is not None:
        identity = calibration.identity if calibration else model_identity(settings, builder)
        risk = build_monitor(board.risk, gate, calibration, identity, board.board.path)
        writer = BoardWriter.create(
            path=board.board.path,
            meta=board_meta(builder.profile, gate),
            max_sessions=board.board.max_sessions or max(LEAST_BOARD, 2 * shape.sessions),
            slots=board.board.slots or max(LEAST_BOARD, 4 * shape.sessions),
            max_workers=max(board.api.workers, API_WORKERS),
            lease_s=board.board.lease_s,
        )
        publication = BoardPublication(writer, builder.profile, live)
    state = new_state(settings, builder, shape, live, publication)
    return Engine(settings, builder, runner, state, emit, risk)


def build_standing_desk(settings: KafkaSettings, engine: Engine, send: Send) -> StandingDesk:
    """Standing queries of an engine: kept in ``kafka.standing_topic``, or by the engine where it names none."""
    return TopicStandingDesk(engine, send) if settings.standing_topic else OwnStandingDesk(engine, send)
