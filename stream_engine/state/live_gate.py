"""The gate as it stands: one holder, read by everything that decides or tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stream_engine.decision.gate import ClassGate, Gate


@dataclass(slots=True)
class LiveGate:
    """``now`` is replaced as a whole when risk control moves it, so whoever reads it sees one gate."""

    now: Gate

    def move(self, classes: Mapping[str, ClassGate]) -> None:
        self.now = replace(self.now, classes=classes)
