"""Where the readers of what was written lie: the one file here to change when they move."""

from __future__ import annotations

from consumers.kafka.offsets import CommitPoint
from consumers.kafka.topics import ensure_topics
from consumers.registry.standing_records import parse_standing
from consumers.wire.open_bars import OpenBar, TradeBars
from consumers.wire.reasons import DeadLetter, RawRecord
from consumers.wire.records import parse_items, parse_records
from consumers.wire.trades import TRADES
from consumers.writers.answers import AnswerRecord
from stream_engine.board.reader import BoardReader, ReadySlot
from stream_engine.cli.demo.service import PrivateService
from stream_engine.client.options import Options
from stream_engine.config.board import BoardSettings
from stream_engine.config.config import Config
from stream_engine.config.engine import EngineSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.config.rules import ConfigError
from stream_engine.decision.calibration import Calibration
from stream_engine.decision.reading import Miss
from stream_engine.messages import Record, Window
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_gate import build_gate, build_monitor, load_calibration
from stream_engine.standing.answer_book import AnswerBook

__all__ = [
    "EMBEDDED",
    "TRADES",
    "AnswerBook",
    "AnswerRecord",
    "BoardReader",
    "BoardSettings",
    "Calibration",
    "CommitPoint",
    "Config",
    "ConfigError",
    "DeadLetter",
    "EngineSettings",
    "Miss",
    "OpenBar",
    "Options",
    "PrivateService",
    "RawRecord",
    "ReadySlot",
    "Record",
    "RiskSettings",
    "TokenBuilder",
    "TradeBars",
    "Window",
    "build_gate",
    "build_monitor",
    "ensure_topics",
    "load_calibration",
    "parse_items",
    "parse_records",
    "parse_standing",
]
