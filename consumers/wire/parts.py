"""Many bars in messages of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

MESSAGE_BARS = 50_000
"""Bars of one message to the engine, some 3 MB: its frames have a bound."""


def split(items: Iterable[T], weight: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Consecutive parts whose weights sum up to at most ``most``, or of a single item."""
    part: list[T] = []
    held = 0
    for item in items:
        weighs = weight(item)
        if part and held + weighs > most:
            yield part
            part, held = [], 0
        part.append(item)
        held += weighs
    if part:
        yield part


T = TypeVar("T")
