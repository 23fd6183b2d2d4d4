"""A causal language model whose forward advances and branches many resident sessions in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stream_engine.model.backbones.families import check_config
from stream_engine.model.forward.attention import ATTENTION, TreeStep, register
from stream_engine.model.forward.step import Segment, SegmentRows, StepLayout, lay_out
from stream_engine.model.forward.store import KVStore


@dataclass(frozen=True, slots=True)
class StepLogits:
    """Logits of one step, on the model's device.

    rows: `[n, vocab_size]`, one row a decision point that was asked for.
    segments: per segment, in the order given, which rows are its own.
    """

    rows: torch.Tensor
    segments: tuple[SegmentRows, ...]


class Backbone:
    """Wraps a `transformers` causal LM and owns its KV store. Not thread-safe: one engine thread calls it."""

    def __init__(self, model: Any, total_cells: int) -> None:
        """Take over `model` (its attention function is replaced) with room for `total_cells` tokens' KV.

        Raises UnsupportedModelError when the tree forward would not be exact for it.
        """
        self._model = model
        self._config = model.config
        self.check()
        register()
        model.set_attn_implementation(ATTENTION)
        model.eval().requires_grad_(False)
        heads = int(self._config.num_attention_heads)
        head_dim = getattr(self._config, "head_dim", None) or self._config.hidden_size // heads
        embedding = model.get_input_embeddings().weight
        self._device = embedding.device
        self._query_heads = heads
        self.store = KVStore(
            layers=int(self._config.num_hidden_layers),
            cells=total_cells,
            kv_heads=int(self._config.num_key_value_heads),
            head_dim=int(head_dim),
            dtype=embedding.dtype,
            device=self._device,
        )

    @property
    def num_cells(self) -> int:
        """Cells of the KV store: tokens that can be resident at once."""
        return self.store.num_cells

    @property
    def vocab_size(self) -> int:
        return int(self._config.vocab_size)

    @property
    def max_positions(self) -> int:
        """Longest sequence that the model was made for; a step that goes past it is refused."""
        return int(self._config.max_position_embeddings)

    def check(self) -> None:
        """Raise UnsupportedModelError when the model is not one the tree forward is exact for."""
        check_config(self._config)

    def forward(self, segments: Sequence[Segment]) -> StepLogits:
        """Compute all tokens of all segments in one pass of the weights, and store their KV.

        Logits are computed after the last token of every branch, and of every append that asks for them.
        Raises ValueError, before anything is written, when a segment leaves the store, passes `max_positions` or
        holds an id outside the vocabulary.
        """
        layout = lay_out(segments)
        self._check_bounds(layout)
        with torch.inference_mode():
            output = self._model(
                input_ids=self._to_device(layout.tokens)[None],
                position_ids=self._to_device(layout.positions)[None],
                use_cache=False,
                logits_to_keep=self._to_device(layout.keep),
                tree_step=TreeStep(layout, self.store, self._query_heads),
            )
            return StepLogits(rows=output.logits[0], segments=layout.rows)

    def _check_bounds(self, layout: StepLayout) -> None:
        for segment in layout.segments:
            for first, last in segment.runs(0, segment.extent):
                if last > self.num_cells:
                    raise ValueError(f"cells [{first}, {last}) leave the store of {self.num_cells}")
            if segment.last_position >= self.max_positions:
                last = segment.last_position
                raise ValueError(f"position {last} passes the model's {self.max_positions} positions")
        # On an accelerator an id out of range would be a device-side assertion that takes the process with it.
        if layout.tokens.min() < 0 or layout.tokens.max() >= self.vocab_size:
            raise ValueError(f"a token id lies outside the vocabulary of {self.vocab_size}")

    def _to_device(self, array: np.ndarray[Any, np.dtype[np.int64]]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
