"""Logits rows as the few numbers of a ready distribution, computed where the logits are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stream_engine.model.forward.distribution import Distribution


def summarise(logits: torch.Tensor, answer_ids: Sequence[int]) -> list[Distribution]:
    """Summaries of `[n, vocab]` logits for a fast-answer set of token ids; one transfer from the device in all."""
    if logits.shape[0] == 0:
        return []
    with torch.inference_mode():
        rows = logits.float()
        top = rows.topk(2, dim=-1)
        partition = rows.logsumexp(dim=-1, keepdim=True)
        answers = torch.tensor(answer_ids, dtype=torch.long, device=rows.device)
        mass = (rows.index_select(1, answers) - partition).exp().sum(dim=-1, keepdim=True)
        gap = top.values[:, :1] - top.values[:, 1:]
        # float64 holds any id and any float32 exactly, so all columns travel together.
        columns = (top.indices, gap, top.values[:, :1], partition, mass)
        table = torch.cat([column.double() for column in columns], dim=-1).tolist()
    return [Distribution(int(top1), int(top2), *rest) for top1, top2, *rest in table]
