"""Settings of the sockets between the processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_engine.config.rules import SHOWN, require
from stream_engine.util.places import default_run_dir


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """ZeroMQ endpoints of the engine. The defaults are Unix sockets in a folder of this user."""

    engine: str = field(
        default_factory=lambda: f"ipc://{default_run_dir()}/engine.sock",
        metadata={SHOWN: "ipc:// in a folder of the user"},
    )
    """Requests to the engine; ``tcp://host:port`` between machines."""
    events: str = field(
        default_factory=lambda: f"ipc://{default_run_dir()}/events.sock",
        metadata={SHOWN: "ipc:// in a folder of the user"},
    )
    """Events from the engine."""

    def __post_init__(self) -> None:
        for name in ("engine", "events"):
            value = getattr(self, name)
            require(value.startswith(("ipc://", "tcp://")), f"transport.{name}", "ipc://... or tcp://...", value)
