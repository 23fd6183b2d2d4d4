"""The writers of one consumer, and their spools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from consumers.writers.answers import AnswerSink
from consumers.writers.dead_letter import DeadLetterWriter
from consumers.writers.spool import Spool
from consumers.writers.windows import WindowWriter


@dataclass(frozen=True, slots=True)
class Writers:
    """``answers`` is absent where the engine alone keeps the standing queries."""

    letters: DeadLetterWriter
    windows: WindowWriter
    answers: AnswerSink | None = None

    @property
    def spools(self) -> Iterator[Spool[Any]]:
        yield self.letters.spool
        yield self.windows.spool
        if self.answers is not None:
            yield self.answers.spool
