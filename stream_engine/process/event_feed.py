"""Events on their way to everyone who listens, numbered."""

from __future__ import annotations

from stream_engine.messages import Event
from stream_engine.messages.transport import EngineServer


class EventFeed:
    """``sequence`` is the number of the last event: a snapshot says up to which one it goes."""

    def __init__(self, server: EngineServer) -> None:
        self._server = server
        self.sequence = 0

    def publish(self, boot_id: str, event: Event) -> None:
        self.sequence += 1
        self._server.publish(boot_id, self.sequence, event)
