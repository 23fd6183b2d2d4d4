"""Whether the engine is there, and whether it is the one we know. Pure policy on a clock that the caller reads."""

from __future__ import annotations

from enum import Enum

HELLO_EVERY_S = 1.0
SILENT_AFTER_S = 10.0
RELINK_AFTER_S = 60.0


class Presence(Enum):
    ABSENT = "absent"
    """No Welcome of this engine yet: nothing may be sent but ConsumerHello."""
    WELCOMED = "welcomed"
    SILENT = "silent"
    """It answers no hello: busy, hung or gone. Records are held back; what is in flight stays in flight."""


_NEXT = {
    Presence.ABSENT: {Presence.WELCOMED},
    Presence.WELCOMED: {Presence.SILENT, Presence.ABSENT},
    Presence.SILENT: {Presence.WELCOMED, Presence.ABSENT},
}


class EngineWatch:
    """Times in seconds of any monotonic clock."""

    def __init__(self, now: float) -> None:
        self.presence = Presence.ABSENT
        self.boot_id: str | None = None
        self.credits = 0
        self._link = b""
        self._heard = now
        self._next_hello = now

    def welcome(self, boot_id: str, credits_: int, link: bytes, now: float) -> bool:
        """A Welcome came: records may flow. True where the engine is new, and so knows no partition of ours, or
        knows us by another connection: what it sent by the old one, acknowledgements too, is lost then."""
        new = self.heard(boot_id, now)
        if self.presence is not Presence.ABSENT and link != self._link:
            new = True
        self.credits, self._link = credits_, link
        if self.presence is not Presence.WELCOMED:
            self._move(Presence.WELCOMED)
        return new

    def heard(self, boot_id: str, now: float) -> bool:
        """Any message came. True on a new boot id: the engine is then absent until it welcomes us."""
        self._heard = now
        if boot_id == self.boot_id:
            if self.presence is Presence.SILENT:
                self._move(Presence.WELCOMED)
            return False
        self.boot_id = boot_id
        if self.presence is not Presence.ABSENT:
            self._move(Presence.ABSENT)
            self._next_hello = now
        return True

    def check(self, now: float) -> bool:
        """Note silence; True at the moment it is noticed."""
        if self.presence is Presence.WELCOMED and now - self._heard >= SILENT_AFTER_S:
            self._move(Presence.SILENT)
            return True
        return False

    def hello_due(self, now: float) -> bool:
        """Greet every second, whatever else is heard: the answer tells of a restarted engine, and of a connection
        that was lost."""
        if now < self._next_hello:
            return False
        self._next_hello = now + HELLO_EVERY_S
        return True

    def relink_due(self, now: float) -> bool:
        """After a minute without a word the queued messages are of no use, and their queue is bounded: a full one
        would block the poll thread. The caller opens a new link; the next Welcome counts as a new engine's."""
        if now - self._heard < RELINK_AFTER_S:
            return False
        self._heard = now
        self.boot_id = None
        if self.presence is not Presence.ABSENT:
            self._move(Presence.ABSENT)
        return True

    def _move(self, presence: Presence) -> None:
        if presence not in _NEXT[self.presence]:
            raise RuntimeError(f"the engine cannot become {presence.value} when {self.presence.value}")
        self.presence = presence
