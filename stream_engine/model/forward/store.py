"""The KV pool: one token's keys and values over all layers are one cell. Policy elsewhere says whose it is."""

from __future__ import annotations

import numpy as np
import torch


class KVStore:
    """Keys and values of every cell, one tensor `[layers, 2, cells, kv_heads, head_dim]`.

    A contiguous run of cells is a view, never a copy, so a slab's live end is a number and truncation is O(1).
    """

    def __init__(
        self,
        *,
        layers: int,
        cells: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if min(layers, cells, kv_heads, head_dim) < 1:
            raise ValueError("layers, cells, kv_heads and head_dim of a KV store are positive")
        self._pool = _zeros((layers, 2, cells, kv_heads, head_dim), dtype, torch.device(device))
        self._layers = [(self._pool[layer, 0], self._pool[layer, 1]) for layer in range(layers)]

    @property
    def num_cells(self) -> int:
        return self._pool.shape[2]

    @property
    def bytes_per_cell(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        layers, two, _, heads, dim = self._pool.shape
        return layers * two * heads * dim * self._pool.element_size()

    @property
    def dtype(self) -> torch.dtype:
        return self._pool.dtype

    @property
    def device(self) -> torch.device:
        return self._pool.device

    @property
    def kv_heads(self) -> int:
        return self._pool.shape[3]

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each `[cells, kv_heads, head_dim]`, as views."""
        return self._layers[index]

    def extent(self, first: int, count: int) -> torch.Tensor:
        """View `[layers, 2, count, kv_heads, head_dim]` of a contiguous run of cells."""
        self._check(first, count)
        return self._pool[:, :, first : first + count]

    def write(self, layer: int, cells: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store `[T, kv_heads, head_dim]` keys and values of one layer at `cells` (int64 [T])."""
        layer_keys, layer_values = self._layers[layer]
        layer_keys.index_copy_(0, cells, keys)
        layer_values.index_copy_(0, cells, values)

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy `count` cells of all layers; the two runs may overlap. Exact only where positions stay the same.

        Raises ValueError when a run leaves the pool.
        """
        run, place = self.extent(source, count), self.extent(target, count)
        if source == target or count == 0:
            return
        place.copy_(run.clone() if abs(source - target) < count else run)

    def _check(self, first: int, count: int) -> None:
        if first < 0 or count < 0 or first + count > self.num_cells:
            raise ValueError(f"cells [{first}, {first + count}) leave the pool of {self.num_cells}")


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeroed, not empty: masked cells are multiplied by a weight of 0, and 0 * NaN would be NaN. On a CPU the
    memory is the process's only once a cell is written: `torch.zeros` writes all of it."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(shape, dtype=f"i{dtype.itemsize}")).view(dtype)
