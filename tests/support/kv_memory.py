"""How much memory the sessions of a test need."""

from __future__ import annotations

from stream_engine.config.engine import EngineSettings
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_model import model_builder, model_files


def kv_memory_for(sessions: int, settings: EngineSettings | None = None) -> str:
    """``engine.kv_memory`` that has room for exactly so many."""
    settings = settings or EngineSettings()
    shape = budget_shape(settings, model_builder(settings, model_files(settings)))
    return str(shape.bytes_for(sessions))
