"""A password that cannot be printed by accident."""

from __future__ import annotations

HIDDEN = "***"


class Secret:
    """A value that ``repr``, ``str``, ``format`` and every log show as ``***``.

    Not a ``str`` itself: a JSON encoder would write that out. It can be pickled, because a process that is spawned
    gets its settings so.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = _Unprinted(value)

    def reveal(self) -> str:
        """The value, for the library that needs it. Its ``repr`` stays hidden: libraries log their options."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and str.__eq__(self._value, other._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return HIDDEN


class _Unprinted(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN
