"""Where the readers of what was written lie: the one file here to change when they move."""

from __future__ import annotations

from consumers.bars import OpenBar, TradeBars
from consumers.offsets import CommitPoint
from consumers.reasons import DeadLetter, RawRecord
from consumers.records import parse_items, parse_records
from consumers.sink import AnswerRecord
from consumers.standing_records import parse_standing
from consumers.topics import ensure_topics
from consumers.trades import TRADES
from stream_engine.answer_book import AnswerBook
from stream_engine.assemble import build_gate, build_monitor, load_calibration
from stream_engine.board import BoardReader, Miss, ReadySlot
from stream_engine.calibration import Calibration
from stream_engine.commands.options import Options
from stream_engine.config import BoardSettings, Config, ConfigError, EngineSettings, RiskSettings
from stream_engine.demo.service import PrivateService
from stream_engine.messages import Record, Window
from stream_engine.model.builder import TokenBuilder
from stream_engine.model.profile import EMBEDDED

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
