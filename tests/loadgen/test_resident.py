"""Symbols that fit are all resident and ready; what does not fit degrades by least use."""

from __future__ import annotations

from loadgen.resident import resident_market
from tests.support.kv_memory import kv_memory_for


def test_each_symbol_that_fits_is_resident_and_answers_fast() -> None:
    found = resident_market(40, kv_memory_for(40))
    assert (found.resident, found.ready, found.fast, found.evictions) == (40, 40, 40, 0)
    assert found.bar_tokens == found.expected_tokens, "one more bar costs its tokens and its riders'"
    assert found.kv_bytes_used <= found.kv_bytes_total == int(kv_memory_for(40))


def test_more_symbols_than_fit_keep_their_answers_and_cost_more() -> None:
    found = resident_market(24, kv_memory_for(16))
    assert (found.resident, found.ready, found.fast) == (16, 24, 24)
    assert found.bar_tokens > found.expected_tokens
    assert found.kv_bytes_used <= found.kv_bytes_total
