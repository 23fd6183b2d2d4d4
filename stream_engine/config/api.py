"""Settings of the HTTP API."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stream_engine.config.rules import require


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """The HTTP API."""

    host: str = "127.0.0.1"
    """There is no authentication yet: keep it private."""
    port: int = 8080
    """Port of the HTTP API."""
    workers: int = 1
    """Processes."""
    engine_timeout_s: float = 10.0
    """How long a request waits for the engine beyond its own ``wait_ms``."""
    max_body_bytes: int = 65_536
    """Larger bodies get 413."""
    max_header_bytes: int = 65_536
    """Of a request's line and headers together; longer ones get 431."""
    max_connections: int = 4096
    """Open connections of one process, event streams among them; a further one is closed at once."""
    request_timeout_s: float = 20.0
    """How long a connection may take to send a request, its body included; then it is closed (408)."""
    send_timeout_s: float = 30.0
    """How long a client may leave what it was sent unread, its buffers full; then its connection is closed."""
    max_wait_ms: int = 30_000
    """Largest ``wait_ms`` of a query."""
    max_page: int = 1000
    """Largest ``limit`` of a list that comes in pages."""
    event_queue: int = 1000
    """Events a slow subscriber may fall behind before it is dropped."""
    allowed_hosts: str = ""
    """Names that the service is reached by, separated by commas, besides ``localhost``, ``api.host`` and addresses
    in digits; ``*``: any. A request with another ``Host`` is refused: it may come from a page whose name was made
    to point here. The health paths take any."""
    cors_origins: str = ""
    """Origins of web pages that may use the service, separated by commas (``https://desk.example``); ``*``: any.
    Others may neither read nor write through their readers' browsers."""
    heartbeat_s: float = 15.0
    """Between two heartbeats of an event stream that has nothing else to say."""

    def __post_init__(self) -> None:
        require(0 <= self.port < 65536, "api.port", "0..65535", self.port)
        require(self.workers > 0, "api.workers", "positive", self.workers)
        for name in (
            "engine_timeout_s", "max_body_bytes", "max_header_bytes", "max_connections", "request_timeout_s",
            "send_timeout_s", "max_page", "event_queue", "heartbeat_s",
        ):  # fmt: skip
            require(getattr(self, name) > 0, f"api.{name}", "positive", getattr(self, name))
        require(self.max_wait_ms >= 0, "api.max_wait_ms", "zero or positive", self.max_wait_ms)
        for host in self.hosts:
            good = host == "*" or re.fullmatch(r"[A-Za-z0-9._-]+", host)
            require(
                good, "api.allowed_hosts", "names without a port, separated by commas, or *", self.allowed_hosts
            )
        for origin in self.origins:
            good = origin == "*" or re.fullmatch(r"https?://[A-Za-z0-9._:\[\]-]+", origin)
            require(good, "api.cors_origins", "origins such as https://desk.example:8443, or *", self.cors_origins)

    @property
    def hosts(self) -> tuple[str, ...]:
        return _listed(self.allowed_hosts)

    @property
    def origins(self) -> tuple[str, ...]:
        return _listed(self.cors_origins)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for each in text.split(",") if (part := each.strip()))
