"""A windows topic and the consumer that writes and reads it, played by the test beside an engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_engine.engine.engine import Engine
from stream_engine.messages import Asleep, PutToSleep, Restore, Sleeper, Wake, Window


@dataclass
class PlayedWindows:
    """Of partition 0 of ``topic``. The newest window of a session is kept, as compaction does."""

    topic: str = "market.bars"
    generation: int = 1
    kept: dict[str, tuple[int, Window]] = field(default_factory=dict)
    end: int = 0
    asked: list[PutToSleep | Wake] = field(default_factory=list)
    too_large: bool = False

    def write(self, window: Window) -> Sleeper:
        at, self.end = self.end, self.end + 1
        if self.too_large or not window.bars:
            self.kept.pop(window.session, None)
            return Sleeper(window.session, window.offset, -1)
        self.kept[window.session] = at, window
        return Sleeper(window.session, window.offset, at)

    def hear(self, engine: Engine) -> None:
        """What the engine says now is still to be answered."""
        self.asked += [message for message in engine.ingest.dormancy.messages() if message.topic == self.topic]

    def answer(self, engine: Engine) -> None:
        """Everything that was asked."""
        self.hear(engine)
        asked, self.asked = self.asked, []
        for message in asked:
            assert message.generation == self.generation
            if isinstance(message, PutToSleep):
                sleepers = tuple(map(self.write, message.windows))
                engine.asleep(Asleep(self.topic, 0, self.generation, sleepers))
            else:
                windows = tuple(self._read(sleeper) for sleeper in message.sleepers)
                engine.ingest.restore(Restore(self.topic, 0, self.generation, windows))

    def _read(self, sleeper: Sleeper) -> Window:
        at, window = self.kept.get(sleeper.session, (-1, None))
        if window is not None and at >= sleeper.at:
            return window
        return Window(sleeper.session, -1, 0, 0, None, ())

    def restart(self, engine: Engine) -> None:
        """What a newly assigned partition is told before its records."""
        windows = tuple(window for _, window in self.kept.values() if not window.asleep)
        engine.ingest.restore(Restore(self.topic, 0, self.generation, windows))
        sleepers = tuple(
            Sleeper(name, window.offset, at) for name, (at, window) in self.kept.items() if window.asleep
        )
        engine.asleep(Asleep(self.topic, 0, self.generation, sleepers))
