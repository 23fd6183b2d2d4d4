"""Sessions that sleep: one small row each, whatever their number."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_ROW = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class DormantRow:
    """``version`` is the session's; ``at`` the offset of its window in the windows topic."""

    version: int
    at: int


class DormantSessions(Mapping[str, DormantRow]):
    """The sleepers of one partition by id. A row is packed: some 150 bytes a session, its id and its place in the
    table included."""

    def __init__(self) -> None:
        self._rows: dict[str, bytes] = {}

    def put(self, session: str, row: DormantRow) -> None:
        self._rows[session] = _ROW.pack(row.version, row.at)

    def remove(self, session: str) -> DormantRow:
        return DormantRow(*_ROW.unpack(self._rows.pop(session)))

    def __contains__(self, session: object) -> bool:
        return session in self._rows

    def __getitem__(self, session: str) -> DormantRow:
        return DormantRow(*_ROW.unpack(self._rows[session]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
