"""Answers on their way to the answers topic: kept until the owner of their partition has them there."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field

from stream_engine.messages import AnswerChanged, AnswerGone
from stream_engine.session.session import Source

MAX_ANSWERS = 2_000
"""Of one message, whose size has a bound."""


@dataclass(slots=True)
class _Way:
    """Of one partition, in the order of evaluation: what is not handed out yet, and what is and may be lost."""

    unsent: deque[tuple[int, AnswerChanged | AnswerGone]] = field(default_factory=deque)
    sent: deque[tuple[int, AnswerChanged | AnswerGone]] = field(default_factory=deque)


class AnswerOutbox:
    """Per partition. A consumer that dies takes with it what it had not written: its successor gets that again,
    and tells by the answers topic what is there already."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._ways: dict[Source, _Way] = {}

    def __len__(self) -> int:
        return sum(len(way.unsent) + len(way.sent) for way in self._ways.values())

    def add(self, answer: AnswerChanged | AnswerGone) -> None:
        """Answers of pushed sessions belong to no partition: they go to no topic."""
        if answer.topic is not None and answer.partition is not None:
            way = self._ways.setdefault(Source(answer.topic, answer.partition), _Way())
            way.unsent.append((next(self._numbers), answer))

    def take(self) -> list[tuple[Source, int, tuple[AnswerChanged | AnswerGone, ...]]]:
        """What was not handed out yet: by partition, in parts, with the number of the last answer of each."""
        taken = []
        for source, way in self._ways.items():
            while way.unsent:
                part = [way.unsent.popleft() for _ in range(min(MAX_ANSWERS, len(way.unsent)))]
                way.sent.extend(part)
                taken.append((source, part[-1][0], tuple(answer for _, answer in part)))
        return taken

    def written(self, source: Source, number: int) -> None:
        """The broker has everything of that partition up to ``number``."""
        way = self._ways.get(source)
        while way is not None and way.sent and way.sent[0][0] <= number:
            way.sent.popleft()

    def again(self, source: Source) -> None:
        """The partition has a new owner: what is not known to be written is handed out once more."""
        if (way := self._ways.get(source)) is not None:
            way.unsent.extendleft(reversed(way.sent))
            way.sent.clear()

    def drop(self, source: Source) -> None:
        """The partition was given up: its next owner evaluates again what was not written."""
        self._ways.pop(source, None)
