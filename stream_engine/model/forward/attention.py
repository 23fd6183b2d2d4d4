"""Tree attention over the KV store, as an attention function of `transformers`.

The model's own layers compute queries, keys and values for one row of tokens; this function stores keys and
values in their cells and lets every segment attend to its own slab through its tree mask. The step reaches it as a
keyword argument, which the supported families pass through unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from stream_engine.model.forward.mask import first_visible, tree_mask
from stream_engine.model.forward.step import StepLayout
from stream_engine.model.forward.store import KVStore

ATTENTION = "stream_engine_tree"

Runs = list[tuple[int, int]]
"""Contiguous cells: first and last + 1 of each run."""


class TreeStep:
    """One step's attention: where the row's keys go, and what each segment sees. Lives for one forward."""

    def __init__(self, layout: StepLayout, store: KVStore, query_heads: int) -> None:
        self._layout = layout
        self._store = store
        self._groups = query_heads // store.kv_heads
        self._cells = torch.from_numpy(layout.cells).to(store.device)
        # By window: the layers of one window share their masks, which are built once a step.
        self._views: dict[int | None, list[tuple[Runs, torch.Tensor]]] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        """Attention of one layer: query `[1, heads, T, head_dim]`, key, value `[1, kv_heads, T, head_dim]`.

        Returns `[1, T, heads, head_dim]`.
        """
        self._store.write(layer, self._cells, key[0].transpose(0, 1), value[0].transpose(0, 1))
        keys, values = self._store.layer(layer)
        heads, dim = query.shape[1], query.shape[3]
        outputs: list[torch.Tensor] = []
        for (first, last), (runs, mask) in zip(self._layout.spans, self._segments(window), strict=True):
            # Query heads that share a key head become more rows of it: grouped attention without repeating keys.
            rows = query[:, :, first:last].reshape(1, -1, self._groups * (last - first), dim)
            seen_keys = _cells(keys, runs).transpose(0, 1).unsqueeze(0)
            seen_values = _cells(values, runs).transpose(0, 1).unsqueeze(0)
            if softcap is None:
                mixed = scaled_dot_product_attention(rows, seen_keys, seen_values, attn_mask=mask, scale=scaling)
            else:
                mixed = _softcapped(rows, seen_keys, seen_values, mask, scaling, softcap)
            outputs.append(mixed.reshape(1, heads, last - first, dim).transpose(1, 2))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)

    def _segments(self, window: int | None) -> list[tuple[Runs, torch.Tensor]]:
        """Per segment: the runs of visible cells, and the additive mask `[1, 1, groups * size, cells]`."""
        views = self._views.get(window)
        if views is None:
            views = self._views[window] = self._build(window)
        return views

    def _build(self, window: int | None) -> list[tuple[Runs, torch.Tensor]]:
        masks = [tree_mask(segment, window) for segment in self._layout.segments]
        # One transfer for the whole step, whatever the number of segments.
        flat = torch.from_numpy(np.concatenate([mask.ravel() for mask in masks]))
        flat = flat.to(device=self._store.device, dtype=self._store.dtype)
        views: list[tuple[Runs, torch.Tensor]] = []
        offset = 0
        for segment, mask in zip(self._layout.segments, masks, strict=True):
            low = first_visible(segment, window)
            # One copy of the rows for each query head of a group, made where they are used.
            rows = flat[offset : offset + mask.size].view(mask.shape).repeat(self._groups, 1)
            views.append((segment.runs(low, segment.extent - low), rows[None, None]))
            offset += mask.size
        return views


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    tree_step: TreeStep,
    **_unused: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function registered with `transformers` under `ATTENTION`; see `TreeStep.attend`."""
    layer = module.layer_idx
    assert isinstance(layer, int)
    scale = float(query.shape[-1] ** -0.5) if scaling is None else scaling
    return tree_step.attend(layer, query, key, value, scale, sliding_window, softcap), None


def register() -> None:
    """Make `ATTENTION` known to `transformers`.

    No mask function is registered under that name on purpose: `transformers` then builds no mask of its own.
    """
    AttentionInterface.register(ATTENTION, tree_attention)


def _cells(store: torch.Tensor, runs: Runs) -> torch.Tensor:
    """Cells `[n, kv_heads, head_dim]`: a view of one run, a copy of several."""
    views = [store[first:last] for first, last in runs]
    return views[0] if len(views) == 1 else torch.cat(views)


def _softcapped(
    rows: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
    softcap: float,
) -> torch.Tensor:
    scores = torch.tanh(rows @ keys.transpose(2, 3) * (scaling / softcap)) * softcap + mask
    return scores.softmax(dim=-1, dtype=torch.float32).to(rows.dtype) @ values
