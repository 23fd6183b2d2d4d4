"""The cell budget: which session's KV lies where, and whether an entry still fits. Ids only, no tensors."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import takewhile
from typing import Self

GROUP = 8
"""Sessions for which there is one extent in the pool."""

LEAST_EXTENTS = 2
"""One for a second slab, one for branches."""


@dataclass(frozen=True, slots=True)
class BudgetShape:
    """Sizes in cells, of ``cell_bytes`` each. Each of ``sessions`` has one slab, as long as its largest log and
    some entries behind that. Behind all slabs lies the pool: ``extents`` runs of ``extent`` cells, each lent to a
    session while it makes a second slab, or while its branches have no room in its slab. Behind the pool lie the
    workbench's cells, and from ``prefix_base`` on the frozen prefix.

    A session counts its cells from its slab's start; those that it has borrowed for branches go on at ``slab``,
    wherever they lie."""

    sessions: int
    slab: int
    extents: int
    extent: int
    prefix: int
    cell_bytes: int = 1

    def __post_init__(self) -> None:
        if self.sessions < 1 or self.extents < 0 or self.slab <= self.prefix or self.extent <= self.prefix:
            raise ValueError(f"{self}: no room for a session")

    @classmethod
    def fit(cls, size: int, *, slab: int, extent: int, prefix: int, cell_bytes: int) -> Self:
        """As many sessions as ``size`` bytes have room for. Raises ValueError, naming the least
        size, where that is none."""
        least = cls(1, slab, LEAST_EXTENTS, extent, prefix, cell_bytes)
        sessions = 1 + size * GROUP // (cell_bytes * (GROUP * slab + extent))
        while sessions and least.bytes_for(sessions) > size:
            sessions -= 1
        if not sessions:
            raise ValueError(f"one session needs {least.bytes_for(1)} bytes: {least.cells} cells of {cell_bytes}")
        extents = max(LEAST_EXTENTS, -(-sessions // GROUP))
        return cls(sessions, slab, extents, extent, prefix, cell_bytes)

    def bytes_for(self, sessions: int) -> int:
        """Bytes that ``fit`` needs for so many sessions of these sizes."""
        extents = max(LEAST_EXTENTS, -(-sessions // GROUP))
        return replace(self, sessions=sessions, extents=extents).cells * self.cell_bytes

    @property
    def share(self) -> int:
        """Cells that a session can count to: its slab, and behind it what it may borrow for branches."""
        return self.slab + (self.extent if self.extents else 0)

    @property
    def pool_base(self) -> int:
        return self.slab * self.sessions

    @property
    def bench_base(self) -> int:
        return self.pool_base + self.extents * self.extent

    @property
    def bench(self) -> int:
        """Cells of the workbench: as many as a session can have."""
        return self.share

    @property
    def prefix_base(self) -> int:
        return self.bench_base + self.bench

    @property
    def cells(self) -> int:
        """Cells that the KV store must have."""
        return self.prefix_base + self.prefix

    @property
    def kept_for_branches(self) -> int:
        """Extents that no second slab takes: a question's branch is worth more than a swap made ahead."""
        return max(1, self.extents // 4)

    def headroom(self, live: int) -> int:
        """``B`` of Alg. 1: cells of a session's own slab behind ``live`` resident ones."""
        return self.slab - live


class Use(Enum):
    """What an extent of the pool is lent for."""

    SECOND_SLAB = "second_slab"
    BRANCHES = "branches"


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
    """Slabs of resident sessions, least recently used first, and what is lent of the pool."""

    def __init__(self, shape: BudgetShape) -> None:
        self.shape = shape
        self.bench = Workbench(shape.bench_base)
        # The lowest cells are used first, so that memory which is never needed is never touched.
        self._free = [index * shape.slab for index in reversed(range(shape.sessions))]
        # Taken at its end and given back at its beginning: what a plan has counted on stays in its place.
        self._spare = deque(shape.pool_base + index * shape.extent for index in reversed(range(shape.extents)))
        self._resident: OrderedDict[str, int] = OrderedDict()
        self._lent: dict[Use, dict[str, int]] = {use: {} for use in Use}

    def base_of(self, session: str) -> int | None:
        return self._resident.get(session)

    @property
    def resident(self) -> tuple[str, ...]:
        """Sessions with a slab, least recently used first."""
        return tuple(self._resident)

    @property
    def resident_count(self) -> int:
        return len(self._resident)

    def least_used(self, keep: set[str]) -> str | None:
        """The session that gives up its cells first, but for those to ``keep``."""
        return next((name for name in self._resident if name not in keep), None)

    def free(self, after: int = 0) -> int | None:
        """Base of the slab that is given next, or ``after`` so many others were."""
        return self._free[-1 - after] if after < len(self._free) else None

    @property
    def free_count(self) -> int:
        return len(self._free)

    def give(self, session: str, base: int) -> None:
        """A free slab goes to the session, which is the last to be evicted now."""
        _take(self._free, base)
        self._resident[session] = base

    def touch(self, session: str) -> None:
        """The session was asked something: it is the last to be evicted now."""
        if session in self._resident:
            self._resident.move_to_end(session)

    def release(self, session: str) -> None:
        """All cells of the session are free."""
        base = self._resident.pop(session, None)
        if base is not None:
            self._free.append(base)
        for use in Use:
            self.give_back(session, use)

    # --- the pool ------------------------------------------------------------------------------------

    def lent(self, session: str, use: Use) -> int | None:
        """Base of the extent that the session has for ``use``."""
        return self._lent[use].get(session)

    def borrowers(self, use: Use) -> tuple[str, ...]:
        return tuple(self._lent[use])

    def spare(self, after: int = 0, keep: int = 0) -> int | None:
        """Base of the extent that is lent next, or ``after`` so many others were; None where no more than ``keep``
        are left."""
        return self._spare[-1 - after] if after + keep < len(self._spare) else None

    def lend(self, session: str, use: Use, base: int) -> None:
        assert session in self._resident, f"session {session!r} borrows cells and has none"
        assert session not in self._lent[use], f"session {session!r} has borrowed for {use.value} already"
        _take(self._spare, base)
        self._lent[use][session] = base

    def give_back(self, session: str, use: Use) -> None:
        base = self._lent[use].pop(session, None)
        if base is not None:
            self._spare.appendleft(base)

    @property
    def lent_count(self) -> int:
        return self.shape.extents - len(self._spare)

    @property
    def cells_used(self) -> int:
        """Cells that somebody has: slabs, what is lent, workbench and prefix."""
        shape = self.shape
        return len(self._resident) * shape.slab + self.lent_count * shape.extent + shape.bench + shape.prefix

    def check_integrity(self) -> None:
        """Every slab and every extent lies in its place, and belongs to one session or to none. Raises
        AssertionError."""
        shape = self.shape
        slabs = sorted([*self._free, *self._resident.values()])
        expected = [index * shape.slab for index in range(shape.sessions)]
        assert slabs == expected, f"slabs are lost, shared or out of place: {slabs}"
        pool = sorted([*self._spare, *(base for lent in self._lent.values() for base in lent.values())])
        expected = [shape.pool_base + index * shape.extent for index in range(shape.extents)]
        assert pool == expected, f"extents of the pool are lost, shared or out of place: {pool}"
        borrowers = {name for lent in self._lent.values() for name in lent}
        assert borrowers <= self._resident.keys(), f"{borrowers - self._resident.keys()} borrowed and have no slab"
        assert len(self.bench.tokens) <= shape.bench, "the workbench holds more than it has cells"


def _take(stack: list[int] | deque[int], base: int) -> None:
    """Mostly the last one: plans count from there."""
    if stack and stack[-1] == base:
        stack.pop()
    else:
        stack.remove(base)
