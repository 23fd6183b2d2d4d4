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
    """The newest answers. Several threads may use it."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], AnswerChanged] = {}
        self._lock = threading.Lock()

    def get(self, session: str, query: str) -> AnswerChanged | None:
        return self._newest.get((session, query))

    def all(self) -> tuple[AnswerChanged, ...]:
        with self._lock:
            return tuple(self._newest.values())

    def note(self, answer: AnswerChanged) -> bool:
        """Enter an answer that supersedes the last one; False where it does not."""
        key = (answer.session, answer.query)
        with self._lock:
            last = self._newest.get(key)
            if last is not None and not supersedes(answer, last):
                return False
            self._newest[key] = answer
            return True

    def replace(self, answers: Iterable[AnswerChanged]) -> None:
        """From now on exactly these."""
        newest = {(answer.session, answer.query): answer for answer in answers}
        with self._lock:
            self._newest = newest

    def discard(self, session: str, query: str) -> bool:
        """Forget one; False where there was none."""
        with self._lock:
            return self._newest.pop((session, query), None) is not None

    def forget_query(self, query: str) -> None:
        with self._lock:
            for key in [key for key in self._newest if key[1] == query]:
                del self._newest[key]
