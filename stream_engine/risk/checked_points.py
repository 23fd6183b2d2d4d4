"""Which decision points were checked lately: one that is asked again and again is evidence only once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAX_POINTS = 8192
"""More than ``risk.horizon`` is by default, so that within it no decision point counts twice."""

Point = tuple[str, int]
"""Session, and the hash of its tokens up to the decision point. Not its version: a record that changes no token
gives a new version of the very same point, and an open bar may go back to an earlier one."""


class DecisionPoints:
    """Those that were checked last, the oldest of them forgotten."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._points = dict.fromkeys(points)

    def __contains__(self, point: Point) -> bool:
        return point in self._points

    def __iter__(self) -> Iterator[Point]:
        """Oldest first."""
        return iter(self._points)

    def add(self, point: Point) -> None:
        self._points[point] = None
        if len(self._points) > MAX_POINTS:
            del self._points[next(iter(self._points))]
