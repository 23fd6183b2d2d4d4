"""From bytes to sessions: what a slab holds, what a cell costs, and what is refused with which words."""

from __future__ import annotations

import re

import pytest

from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.model.backbones.loader import load_backbone
from stream_engine.model.hub.files import find_model
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_budget import budget_shape, cell_bytes
from stream_engine.util import memory
from tests.support.kv_memory import kv_memory_for


def live_tokens(builder: TokenBuilder, bars: int) -> int:
    return len(builder.prefix) + builder.max_anchor_tokens + bars * builder.tokens_per_bar


def test_a_slab_is_as_long_as_a_region_and_an_extent_as_a_window(builder: TokenBuilder) -> None:
    shape = budget_shape(EngineSettings(kv_memory=kv_memory_for(3), entry_cells=20), builder)
    profile = builder.profile
    assert shape.slab == live_tokens(builder, profile.region_bars) + 20
    assert shape.extent == live_tokens(builder, profile.window_bars)
    longest = max(len(builder.query_entry(wording)) for listed in profile.questions.values() for wording in listed)
    default = budget_shape(EngineSettings(kv_memory="1GiB"), builder)
    assert default.headroom(live_tokens(builder, profile.region_bars)) >= longest + len(builder.generic_entry)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cell_costs_what_the_store_says(dtype: str) -> None:
    settings, files = EngineSettings(dtype=dtype), find_model("embedded")
    store = load_backbone(EMBEDDED, total_cells=4, dtype=dtype).store
    assert cell_bytes(settings, files) == store.bytes_per_cell


def test_two_thousand_symbols_fit_in_four_gibibytes(builder: TokenBuilder) -> None:
    shape = budget_shape(EngineSettings(kv_memory="4GiB"), builder)
    assert shape.sessions >= 2_000
    assert shape.cells * shape.cell_bytes <= 4 * 2**30
    half = budget_shape(EngineSettings(kv_memory="2GiB", dtype="bfloat16"), builder)
    assert half.sessions == shape.sessions


def test_the_least_budget_is_named_and_works(builder: TokenBuilder) -> None:
    for size in ("1", "500kB", "1MiB"):
        with pytest.raises(ConfigError, match=r"engine\.kv_memory = '.*': too little: one session needs") as error:
            budget_shape(EngineSettings(kv_memory=size), builder)
    found = re.search(r"needs (\d+) bytes", str(error.value))
    assert found is not None
    assert budget_shape(EngineSettings(kv_memory=found[1]), builder).sessions == 1
    with pytest.raises(ConfigError):
        budget_shape(EngineSettings(kv_memory=str(int(found[1]) - 1)), builder)


def test_a_share_is_one_of_what_the_control_group_leaves(
    builder: TokenBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_group_limits", lambda: [2 * 2**30])
    shared = budget_shape(EngineSettings(kv_memory="50%"), builder)
    assert shared == budget_shape(EngineSettings(kv_memory="1GiB"), builder)
