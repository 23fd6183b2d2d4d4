"""Many supervised answers a pass: one series, several boundaries, several entries at each, one tree mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM

from stream_engine.data.simulate import SimulatedBars
from stream_engine.data.statistics import Labels, labels
from stream_engine.data.wordings import draw_symbol, vary
from stream_engine.model.frame import RegionFrame
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.training.fused import hidden_states

_PLAIN_SHARE = 0.35
_IGNORED = -100


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """One training batch; `trunk` is prefix + anchor + bars, everything behind it is branches.

    tokens, positions, cut, branch: int64 [B, T]. `cut` is the last trunk cell that a token sees, `branch` its
    branch number (0 = trunk, -1 = padding). answer_at, answer: int64 [B, A]: where an entry ends and the token id
    expected there (-100 = none); entry_kind: int64 [B, A] (0 = generic header, then 1 + class index).
    bar_at: int64 [B, F] ends of the bars from window_bars on, bar_labels: int64 [B, F, classes].
    """

    tokens: Tensor
    positions: Tensor
    cut: Tensor
    branch: Tensor
    answer_at: Tensor
    answer: Tensor
    entry_kind: Tensor
    bar_at: Tensor
    bar_labels: Tensor


class BarHeads(nn.Module):
    """Training-only classifiers on the bars' hidden states below the last layer.

    Entries copy what the bars already worked out; supervising every bar from window_bars on gives that a gradient
    at each boundary of the series. They are not part of the saved model.
    """

    def __init__(self, width: int, classes: int, words: int) -> None:
        super().__init__()
        self.shape = (classes, words)
        self.out = nn.Linear(width, classes * words)

    def forward(self, hidden: Tensor) -> Tensor:
        scaled = functional.rms_norm(hidden, (hidden.shape[-1],))
        logits: Tensor = self.out(scaled)
        return logits.view(*hidden.shape[:-1], *self.shape)


def window_labels(
    close: NDArray[np.float64], volume: NDArray[np.float64], window: int, names: tuple[str, ...]
) -> list[Labels]:
    """Labels of each class at each boundary from `window` bars on: arrays of [series, bars - window + 1]."""
    closes, volumes = (
        np.lib.stride_tricks.sliding_window_view(column, window, axis=-1) for column in (close, volume)
    )
    return [*labels(closes, volumes, names).values()]


def make_batch(
    builder: TokenBuilder,
    bars: SimulatedBars,
    rng: np.random.Generator,
    boundaries: int,
    shares: tuple[float, ...],
    plain: bool = False,
) -> TrainingBatch:
    """Render each series as the live service would at `boundaries` fills between one and two windows.

    At each fill: the generic header, and one question of a class drawn by `shares` (one a class of the profile).
    Unit and reference come from the region's first bars; a boundary behind a bar that leaves the level range is
    not supervised (the service swaps there). `plain` asks the listed wordings as they are, without variation.
    """
    profile = builder.profile
    window, total, size = profile.window_bars, bars.close.shape[1], builder.tokens_per_bar
    names = tuple(answer_class.name for answer_class in profile.classes)
    right = window_labels(bars.close, bars.volume, window, names)
    index = np.stack([labels.index for labels in right], axis=-1)
    # A window without any volume has its documented answer when asked, and nothing for the bars to learn.
    volumes = np.lib.stride_tricks.sliding_window_view(bars.volume, window, axis=-1)
    idle = ~(volumes > 0).any(axis=-1, keepdims=True) & (np.array(names) == "volume")
    ids = {word: token for token, word in builder.answers.items()}
    word_ids = np.array(
        [[ids[(answer_class.name, word)] for word in answer_class.words] for answer_class in profile.classes]
    )
    generic = names.index(profile.generic_class.name)
    rows: list[Row] = []
    for at in range(len(bars.close)):
        series = bars.series(at)
        symbol = draw_symbol(rng)
        frame = RegionFrame.fit(symbol, series)
        row = Row([*builder.prefix, *builder.anchor(frame)])
        start = len(row.tokens)
        row.trunk(builder.bars(frame, series).ravel().tolist())
        fits = np.logical_and.accumulate(frame.fits(series.close))
        row.bar_at = [start + size * fill - 1 for fill in range(window, total + 1)]
        row.bar_ok = fits[window - 1 :]
        for fill in np.sort(rng.choice(np.arange(window, total + 1), boundaries, replace=False)).tolist():
            asked = int(rng.choice(len(names), p=shares))
            question = _question(rng, profile.questions[names[asked]], symbol, plain)
            for kind, which, tokens in (
                (0, generic, builder.generic_entry),
                (1 + asked, asked, builder.query_entry(question)),
            ):
                expected = int(word_ids[which, index[at, fill - window, which]])
                row.entry(tokens, start + size * fill, expected if fits[fill - 1] else _IGNORED, kind)
        rows.append(row)
    length = -(-max(len(row.tokens) for row in rows) // 8) * 8
    bar_ok = np.stack([row.bar_ok for row in rows])
    return TrainingBatch(
        tokens=_padded([row.tokens for row in rows], length),
        positions=_padded([row.positions for row in rows], length),
        cut=_padded([row.cut for row in rows], length),
        branch=_padded([row.branch for row in rows], length, pad=-1),
        answer_at=torch.tensor([row.answer_at for row in rows]),
        answer=torch.tensor([row.answer for row in rows]),
        entry_kind=torch.tensor([row.entry_kind for row in rows]),
        bar_at=torch.tensor([row.bar_at for row in rows]),
        bar_labels=torch.from_numpy(np.where(bar_ok[..., None] & ~idle, index, _IGNORED)),
    )


class Row:
    """One sequence under construction: a trunk, and entries that see it up to where they start."""

    def __init__(self, opening: list[int]) -> None:
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.cut: list[int] = []
        self.branch: list[int] = []
        self.answer_at: list[int] = []
        self.answer: list[int] = []
        self.entry_kind: list[int] = []
        self.bar_at: list[int] = []
        self.bar_ok: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.trunk(opening)

    def trunk(self, tokens: list[int]) -> None:
        at = range(len(self.tokens), len(self.tokens) + len(tokens))
        self.tokens += tokens
        self.positions += at
        self.cut += at
        self.branch += [0] * len(tokens)

    def entry(self, tokens: tuple[int, ...], start: int, right: int, kind: int) -> None:
        self.tokens += tokens
        self.positions += range(start, start + len(tokens))
        self.cut += [start - 1] * len(tokens)
        self.branch += [len(self.answer) + 1] * len(tokens)
        self.answer_at.append(len(self.tokens) - 1)
        self.answer.append(right)
        self.entry_kind.append(kind)


def _question(rng: np.random.Generator, listed: tuple[str, ...], symbol: str, plain: bool) -> str:
    question = listed[rng.integers(len(listed))]
    return question if plain or rng.random() < _PLAIN_SHARE else vary(rng, question, symbol)


def _padded(lists: list[list[int]], length: int, pad: int = 0) -> Tensor:
    return torch.tensor([row + [pad] * (length - len(row)) for row in lists])


def tree_mask(batch: TrainingBatch) -> Tensor:
    """Who sees whom, bool [B, 1, T, T]: trunk causal; a branch sees the trunk up to its boundary, and itself."""
    at = torch.arange(batch.tokens.shape[1])
    trunk = (batch.branch == 0)[:, None, :] & (at[None, None, :] <= batch.cut[:, :, None])
    own = (batch.branch[:, None, :] == batch.branch[:, :, None]) & (at[None, None, :] <= at[None, :, None])
    return (trunk | (own & (batch.branch > 0)[:, :, None]))[:, None]


def forward(network: LlamaForCausalLM, batch: TrainingBatch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits at the answers [B, A, vocabulary], hidden states of the bars below the last layer [B, F, width]."""
    last, below = hidden_states(network, batch.tokens, batch.positions, tree_mask(batch), dtype)
    rows = torch.arange(len(batch.tokens))[:, None]
    return network.lm_head(last[rows, batch.answer_at]), below[rows, batch.bar_at]


def loss(logits: Tensor, bar_logits: Tensor, batch: TrainingBatch) -> Tensor:
    """Mean cross-entropy of the answers plus that of the bar heads."""
    answers = functional.cross_entropy(logits.flatten(0, 1), batch.answer.flatten(), ignore_index=_IGNORED)
    bars = functional.cross_entropy(bar_logits.flatten(0, 2), batch.bar_labels.flatten(), ignore_index=_IGNORED)
    return answers + bars
