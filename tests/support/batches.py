"""Batches as a consumer sends them."""

from __future__ import annotations

from collections.abc import Iterable

from stream_engine.messages import Batch, Record


def batch_of(
    records: Iterable[Record],
    follows: int = -1,
    *,
    last: int | None = None,
    consumed: int | None = None,
    topic: str = "market.bars",
    partition: int = 0,
    generation: int = 1,
) -> Batch:
    """One batch of ``records``, after offset ``follows`` and up to the last of them."""
    taken = tuple(records)
    return Batch(
        topic=topic,
        partition=partition,
        generation=generation,
        follows=follows,
        last=taken[-1].offset if last is None else last,
        consumed=len(taken) if consumed is None else consumed,
        records=taken,
    )
