"""The configured cell budget: how many cells a session's share has."""

from __future__ import annotations

from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.model.render.rendering import Builder
from stream_engine.session.cell_budget import BudgetShape

ENTRY_CELLS = 256
"""Cells of a share that are planned for entries, where ``engine.total_cells`` is left to us."""


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
