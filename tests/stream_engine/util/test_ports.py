"""Ports for services that are stopped and started again."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stream_engine.util import ports


def test_a_port_is_free_and_no_outgoing_connection_is_given_it() -> None:
    port = ports.free_port()
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if outgoing.exists():
        lowest, highest = map(int, outgoing.read_text().split())
        assert not lowest <= port <= highest


def test_ports_in_use_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "LISTENING_PORTS", (port, port, 0))
        assert ports.free_port() == 0  # the system's own choice, here the only free one
        monkeypatch.setattr(ports, "LISTENING_PORTS", (port,))
        with pytest.raises(OSError, match="no free TCP port"):
            ports.free_port()
