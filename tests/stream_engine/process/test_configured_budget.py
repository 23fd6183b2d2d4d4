"""Cells of a share: what it holds, and what is refused with which words."""

from __future__ import annotations

import re

import pytest

from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_budget import budget_shape


def live_tokens(builder: TokenBuilder, bars: int) -> int:
    return len(builder.prefix) + builder.max_anchor_tokens + bars * builder.tokens_per_bar


def test_the_default_share_holds_a_full_region_its_entries_and_the_second_slab(builder: TokenBuilder) -> None:
    shape = budget_shape(EngineSettings(max_sessions=3), builder)
    profile = builder.profile
    assert shape.reserve == live_tokens(builder, profile.window_bars)
    longest = max(len(builder.query_entry(one)) for listed in profile.questions.values() for one in listed)
    assert shape.headroom(live_tokens(builder, profile.region_bars)) >= longest + len(builder.generic_entry)


def test_the_least_budget_is_named_and_works(builder: TokenBuilder) -> None:
    for cells in (1, 500):
        with pytest.raises(ConfigError, match=r"engine\.total_cells = \d+.*engine\.max_sessions = 4"):
            budget_shape(EngineSettings(max_sessions=4, total_cells=cells), builder)
    with pytest.raises(ConfigError) as error:
        budget_shape(EngineSettings(max_sessions=4, total_cells=1_000), builder)
    found = re.search(r"at least (\d+)", str(error.value))
    assert found is not None
    shape = budget_shape(EngineSettings(max_sessions=4, total_cells=int(found[1])), builder)
    assert shape.headroom(live_tokens(builder, builder.profile.region_bars)) >= 0
    with pytest.raises(ConfigError):
        budget_shape(EngineSettings(max_sessions=4, total_cells=int(found[1]) - 1), builder)
