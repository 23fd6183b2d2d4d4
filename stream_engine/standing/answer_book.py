"""What was answered last, per session and standing query: by this rule every change is told once, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from stream_engine.messages import AnswerChanged

KEY_SEPARATOR = "|"
"""Between session and query id in the keys of the answers topic; so no query id holds it."""


def answer_key(session: str, query: str) -> bytes:
    """The key of the answers topic."""
    return f"{session}{KEY_SEPARATOR}{query}".encode()


def supersedes(answer: AnswerChanged, last: AnswerChanged) -> bool:
    """Whether ``answer`` comes after ``last`` of the same session and query.

    A version of one source is evaluated once: a replay evaluates it again, and that is no news. Versions of
    different partitions cannot be compared, and a question that was changed is asked again at the same version."""
    if (answer.topic, answer.partition) != (last.topic, last.partition):
        return True
    if answer.session_version == last.session_version:
        return answer.question != last.question
    return answer.session_version > last.session_version


class AnswerBook:
    """The newest answers, by query: what is asked of one query costs what that query has. Several threads may use
    it."""

    def __init__(self) -> None:
        self._newest: dict[str, dict[str, AnswerChanged]] = {}
        self._lock = threading.Lock()

    def get(self, session: str, query: str) -> AnswerChanged | None:
        return self._newest.get(query, {}).get(session)

    def all(self) -> tuple[AnswerChanged, ...]:
        with self._lock:
            return tuple(answer for answers in self._newest.values() for answer in answers.values())

    def of_query(self, query: str) -> tuple[AnswerChanged, ...]:
        with self._lock:
            return tuple(self._newest.get(query, {}).values())

    def queries(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._newest)

    def note(self, answer: AnswerChanged) -> bool:
        """Enter an answer that supersedes the last one; False where it does not."""
        with self._lock:
            answers = self._newest.setdefault(answer.query, {})
            last = answers.get(answer.session)
            if last is not None and not supersedes(answer, last):
                return False
            answers[answer.session] = answer
            return True

    def replace(self, answers: Iterable[AnswerChanged]) -> None:
        """From now on exactly these."""
        newest: dict[str, dict[str, AnswerChanged]] = {}
        for answer in answers:
            newest.setdefault(answer.query, {})[answer.session] = answer
        with self._lock:
            self._newest = newest

    def discard(self, session: str, query: str) -> bool:
        """Forget one; False where there was none."""
        with self._lock:
            answers = self._newest.get(query, {})
            known = answers.pop(session, None) is not None
            if known and not answers:
                del self._newest[query]
            return known

    def forget_query(self, query: str) -> None:
        with self._lock:
            self._newest.pop(query, None)
