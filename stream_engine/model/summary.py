"""Logits rows as the few numbers of a ready distribution, computed where the logits are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class LogitSummary:
    """What is kept of one next-token distribution.

    top1, top2: ids of the two largest logits. gap: their difference, in logits (Eq. 12).
    log_partition: log of the sum of exp over all logits.
    fast_set_mass: probability of the fast-answer set, 0 to 1.
    """

    top1: int
    top2: int
    gap: float
    log_partition: float
    fast_set_mass: float


def summarise(logits: torch.Tensor, answer_ids: Sequence[int]) -> list[LogitSummary]:
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
        # float64 holds any id and any float32 exactly, so the five columns travel together.
        table = torch.cat([top.indices.double(), gap.double(), partition.double(), mass.double()], dim=-1).tolist()
    return [LogitSummary(int(top1), int(top2), gap, part, mass) for top1, top2, gap, part, mass in table]
