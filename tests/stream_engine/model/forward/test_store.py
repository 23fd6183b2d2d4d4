"""The KV pool."""

from __future__ import annotations

import pytest
import torch

from stream_engine.model.forward.store import KVStore


def filled() -> KVStore:
    store = KVStore(layers=2, cells=10, kv_heads=2, head_dim=4)
    store.extent(0, 10).copy_(torch.arange(2 * 2 * 10 * 2 * 4, dtype=torch.float32).view(2, 2, 10, 2, 4))
    return store


def test_an_extent_is_a_view() -> None:
    store = filled()
    store.extent(3, 2).zero_()
    keys, values = store.layer(1)
    assert keys[3:5].abs().sum() == 0
    assert values[3:5].abs().sum() == 0
    assert keys[2].abs().sum() > 0


@pytest.mark.parametrize(("source", "target", "count"), [(0, 5, 5), (0, 2, 6), (4, 1, 6), (3, 3, 2), (1, 2, 0)])
def test_copy_moves_all_layers_even_onto_itself(source: int, target: int, count: int) -> None:
    store = filled()
    before = store.extent(0, 10).clone()
    store.copy(source, target, count)
    assert torch.equal(store.extent(target, count), before[:, :, source : source + count])
    outside = [cell for cell in range(10) if not target <= cell < target + count]
    assert torch.equal(store.extent(0, 10)[:, :, outside], before[:, :, outside])


def test_write_puts_each_token_in_its_cell() -> None:
    store = filled()
    before = store.extent(0, 10).clone()
    keys, values = torch.randn(2, 2, 4), torch.randn(2, 2, 4)
    store.write(1, torch.tensor([7, 2]), keys, values)
    stored_keys, stored_values = store.layer(1)
    assert torch.equal(stored_keys[[7, 2]], keys)
    assert torch.equal(stored_values[[7, 2]], values)
    assert torch.equal(store.extent(0, 10)[0], before[0])


def test_runs_outside_the_pool_are_refused() -> None:
    store = filled()
    for first, count in ((-1, 2), (9, 2), (0, -1)):
        with pytest.raises(ValueError, match="leave the pool"):
            store.extent(first, count)
    with pytest.raises(ValueError, match="leave the pool"):
        store.copy(0, 6, 5)
    with pytest.raises(ValueError, match="positive"):
        KVStore(layers=1, cells=0, kv_heads=1, head_dim=1)


def test_bytes_per_cell_counts_keys_and_values_of_all_layers() -> None:
    assert filled().bytes_per_cell == 2 * 2 * 2 * 4 * 4
    half = KVStore(layers=3, cells=1, kv_heads=2, head_dim=8, dtype=torch.bfloat16)
    assert half.bytes_per_cell == 3 * 2 * 2 * 8 * 2
