"""The cell budget: which session's KV lies where, and whether an entry still fits. Ids only, no tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class BudgetShape:
    """Sizes in cells. A session's share is one contiguous extent: the live slab from its start, and the
    last ``reserve`` cells kept for the second slab of the window swap. Behind all shares lie the workbench's
    cells, and from ``prefix_base`` on the frozen prefix, once for all sessions."""

    total: int
    max_sessions: int
    reserve: int
    prefix: int

    def __post_init__(self) -> None:
        if self.share <= self.reserve + self.prefix:
            raise ValueError(
                f"engine.total_cells = {self.total}: a share of {self.share} cells for each of engine.max_sessions"
                f" = {self.max_sessions} sessions has no room beside the second slab's {self.reserve};"
                " raise the first or lower the second"
            )

    @property
    def share(self) -> int:
        return self.total // self.max_sessions

    @property
    def bench_base(self) -> int:
        return self.share * self.max_sessions

    @property
    def bench(self) -> int:
        """Cells of the workbench: a share without a second slab."""
        return self.share - self.reserve

    @property
    def prefix_base(self) -> int:
        return self.bench_base + self.bench

    @property
    def cells(self) -> int:
        """Cells that the KV store must have."""
        return self.prefix_base + self.prefix

    def headroom(self, live: int) -> int:
        """``B`` of Alg. 1: cells that entries may take behind ``live`` resident ones."""
        return self.share - live - self.reserve


@dataclass(slots=True)
class Workbench:
    """Cells that are no session's. In idle time a session without cells is computed here: that takes nothing from
    anybody. ``tokens`` are those whose cells lie here."""

    base: int
    tokens: list[int] = field(default_factory=list)

    def in_common(self, log: Sequence[int]) -> int:
        """How many tokens the cells have in common with ``log``, from its beginning on."""
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self.tokens, log, strict=False))
        return sum(1 for _ in same)

    def hold(self, tokens: Sequence[int]) -> None:
        """These are the tokens whose cells lie here now."""
        self.tokens[:] = tokens


class CellBudget:
    """Extents of resident sessions, least recently used first."""

    def __init__(self, shape: BudgetShape) -> None:
        self.shape = shape
        self.bench = Workbench(shape.bench_base)
        self._free = [index * shape.share for index in reversed(range(shape.max_sessions))]
        self._resident: OrderedDict[str, int] = OrderedDict()

    def base_of(self, session: str) -> int | None:
        return self._resident.get(session)

    @property
    def resident(self) -> tuple[str, ...]:
        """Sessions with an extent, least recently used first."""
        return tuple(self._resident)

    @property
    def free(self) -> tuple[int, ...]:
        """Bases of the extents that nobody has, in the order in which they are given."""
        return tuple(reversed(self._free))

    def give(self, session: str, base: int) -> None:
        """A free extent goes to the session, which is the last to be evicted now."""
        self._free.remove(base)
        self._resident[session] = base

    def check_integrity(self) -> None:
        """Every extent lies in its place, and belongs to one session or to none. Raises AssertionError."""
        shape = self.shape
        bases = sorted([*self._free, *self._resident.values()])
        expected = [index * shape.share for index in range(shape.max_sessions)]
        assert bases == expected, f"extents are lost, shared or out of place: {bases}"
        assert len(self.bench.tokens) <= shape.bench, "the workbench holds more than it has cells"

    def touch(self, session: str) -> None:
        """The session was asked something: it is the last to be evicted now."""
        if session in self._resident:
            self._resident.move_to_end(session)

    def release(self, session: str) -> None:
        base = self._resident.pop(session, None)
        if base is not None:
            self._free.append(base)
