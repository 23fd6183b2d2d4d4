"""The model as the engine sees it: a backbone, its KV store and the reduction of its logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stream_engine.model.backbones.backbone import Backbone
from stream_engine.model.backbones.summary import summarise
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Segment


class ModelRunner:
    """Runs steps on a backbone; ``answer_ids`` is the fast-answer set."""

    def __init__(self, backbone: Backbone, answer_ids: Sequence[int]) -> None:
        self._backbone = backbone
        self._answer_ids = list(answer_ids)

    @property
    def precision(self) -> float:
        """Relative step between neighbouring numbers of the type that logits are computed in."""
        return float(torch.finfo(self._backbone.store.dtype).eps)

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        """One forward pass over all segments; raises ValueError before anything is written."""
        logits = self._backbone.forward(segments)
        reduced = summarise(logits.rows, self._answer_ids)
        return [SegmentResult(tuple(reduced[row] for row in rows.branches)) for rows in logits.segments]

    def copy(self, source: int, target: int, count: int) -> None:
        self._backbone.store.copy(source, target, count)
