"""Answers on their way to the answers topic: kept until the owner of their partition has them there."""

from __future__ import annotations

import itertools
from collections import deque

from stream_engine.messages import AnswerChanged, AnswerGone
from stream_engine.session.session import Source

MAX_ANSWERS = 2_000
"""Of one message, whose size has a bound."""


class AnswerOutbox:
    """Per partition, in the order of evaluation. A consumer that dies takes with it what it had not written: its
    successor gets that again, and tells by the answers topic what is there already."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._unwritten: dict[Source, deque[tuple[int, AnswerChanged | AnswerGone]]] = {}
        self._sent: dict[Source, int] = {}

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._unwritten.values())

    def add(self, answer: AnswerChanged | AnswerGone) -> None:
        """Answers of pushed sessions belong to no partition: they go to no topic."""
        if answer.topic is not None and answer.partition is not None:
            source = Source(answer.topic, answer.partition)
            self._unwritten.setdefault(source, deque()).append((next(self._numbers), answer))

    def take(self) -> list[tuple[Source, int, tuple[AnswerChanged | AnswerGone, ...]]]:
        """What was not handed out yet: by partition, in parts, with the number of the last answer of each."""
        taken = []
        for source, waiting in self._unwritten.items():
            sent = self._sent.get(source, 0)
            unsent = [numbered for numbered in waiting if numbered[0] > sent]
            for first in range(0, len(unsent), MAX_ANSWERS):
                part = unsent[first : first + MAX_ANSWERS]
                self._sent[source] = part[-1][0]
                taken.append((source, part[-1][0], tuple(answer for _, answer in part)))
        return taken

    def written(self, source: Source, number: int) -> None:
        """The broker has everything of that partition up to ``number``."""
        waiting = self._unwritten.get(source)
        while waiting and waiting[0][0] <= number:
            waiting.popleft()

    def again(self, source: Source) -> None:
        """The partition has a new owner: what is not known to be written is handed out once more."""
        self._sent.pop(source, None)

    def drop(self, source: Source) -> None:
        """The partition was given up: its next owner evaluates again what was not written."""
        self._unwritten.pop(source, None)
        self._sent.pop(source, None)
