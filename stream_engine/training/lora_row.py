"""Training sequences of an adapter: a series rendered as text, with several questions asked along its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_engine.data.simulate import simulate
from stream_engine.data.truth import truths
from stream_engine.data.wordings import draw_symbol, vary
from stream_engine.model.frame import BarArrays, RegionFrame
from stream_engine.model.render.text_builder import TextBuilder

_LISTED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class LoraRow:
    """T tokens, of which the first are prefix, anchor and bars, and the rest are entries that see them up to
    their boundary.

    tokens, positions: int64 [T]; sees: bool [T, T], true where a token (row) sees another (column).
    answer_at, answer: int64 [A]; where an entry ends, and the token id expected there. generic: bool [A].
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    sees: NDArray[np.bool_]
    answer_at: NDArray[np.int64]
    answer: NDArray[np.int64]
    generic: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LoraBatch:
    """B rows, padded to the longest by tokens that see only themselves, with A answers in all.

    tokens, positions: int64 [B, T]; sees: bool [B, T, T]. row, answer_at, answer: int64 [A]; whose entry, where in
    its row it ends, and the token id expected there. generic: bool [A].
    """

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    sees: NDArray[np.bool_]
    row: NDArray[np.int64]
    answer_at: NDArray[np.int64]
    answer: NDArray[np.int64]
    generic: NDArray[np.bool_]


def make_batch(
    builder: TextBuilder, rng: np.random.Generator, series: int, bars: int, boundaries: int
) -> LoraBatch:
    """Simulate `series` instruments of `bars` bars, each asked at `boundaries` fills of the region from one window
    on: by the generic header, and by a question of the generic class, half of them in other words."""
    drawn = simulate(rng, series, bars)
    return stack([make_row(builder, rng, draw_symbol(rng), drawn.series(at), boundaries) for at in range(series)])


def stack(rows: Sequence[LoraRow]) -> LoraBatch:
    """Rows as one batch, in their order."""
    length = max(len(row.tokens) for row in rows)
    tokens = np.zeros((len(rows), length), dtype=np.int64)
    positions = np.zeros_like(tokens)
    sees = np.tile(np.eye(length, dtype=np.bool_), (len(rows), 1, 1))
    for at, row in enumerate(rows):
        size = len(row.tokens)
        tokens[at, :size], positions[at, :size], sees[at, :size, :size] = row.tokens, row.positions, row.sees
    return LoraBatch(
        tokens=tokens,
        positions=positions,
        sees=sees,
        row=np.repeat(np.arange(len(rows)), [len(row.answer) for row in rows]),
        answer_at=np.concatenate([row.answer_at for row in rows]),
        answer=np.concatenate([row.answer for row in rows]),
        generic=np.concatenate([row.generic for row in rows]),
    )


def make_row(
    builder: TextBuilder, rng: np.random.Generator, symbol: str, bars: BarArrays, boundaries: int
) -> LoraRow:
    """Render one region. Boundaries behind a bar that leaves the units' range are left out: there is a swap."""
    profile = builder.profile
    window, kind = profile.window_bars, profile.generic_class
    frame = RegionFrame.fit(symbol, bars)
    opening = [*builder.prefix, *builder.anchor(frame)]
    fits = np.logical_and.accumulate(frame.fits(bars.close))
    fills = [fill for fill in range(window, len(bars) + 1) if fits[fill - 1]] or [window]
    fills = sorted(rng.choice(fills, min(boundaries, len(fills)), replace=False).tolist())
    trunk = opening + builder.bars(frame, bars[: fills[-1]]).ravel().tolist()
    right = truths([kind], [bars[fill - window : fill] for fill in fills])
    entries: list[tuple[int, tuple[int, ...], int]] = []
    for fill, word in zip(fills, right, strict=True):
        end = len(opening) + builder.tokens_per_bar * fill
        expected = builder.answer_ids[(kind.name, word[kind.name])]
        entries.append((end, builder.generic_entry, expected))
        listed = profile.questions[kind.name]
        question = listed[rng.integers(len(listed))]
        if rng.random() > _LISTED_SHARE:
            question = vary(rng, question, symbol)
        entries.append((end, builder.query_entry(question), expected))
    return _joined(trunk, entries)


def _joined(trunk: list[int], entries: Sequence[tuple[int, tuple[int, ...], int]]) -> LoraRow:
    tokens, positions = list(trunk), list(range(len(trunk)))
    size = len(trunk) + sum(len(entry) for _, entry, _ in entries)
    sees = np.zeros((size, size), dtype=np.bool_)
    sees[: len(trunk), : len(trunk)] = np.tri(len(trunk), dtype=np.bool_)
    answer_at: list[int] = []
    for end, entry, _ in entries:
        first, last = len(tokens), len(tokens) + len(entry)
        tokens += entry
        positions += range(end, end + len(entry))
        sees[first:last, :end] = True
        sees[first:last, first:last] = np.tri(len(entry), dtype=np.bool_)
        answer_at.append(last - 1)
    return LoraRow(
        tokens=np.array(tokens, dtype=np.int64),
        positions=np.array(positions, dtype=np.int64),
        sees=sees,
        answer_at=np.array(answer_at, dtype=np.int64),
        answer=np.array([expected for _, _, expected in entries], dtype=np.int64),
        generic=np.arange(len(entries)) % 2 == 0,
    )
