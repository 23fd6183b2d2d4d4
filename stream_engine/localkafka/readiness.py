"""Asks a broker whether it serves, by a real request: its port opens before it answers."""

from __future__ import annotations

import socket
from typing import Any


def broker_cluster_id(host: str, port: int, timeout: float) -> str | None:
    """The cluster id that the broker at this address answers with, or None when none answers in time.

    Args:
        timeout: seconds for the connection and the metadata request together, about.
    """
    try:
        # Most "no" answers end here, without a client and its log lines.
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError:
        return None

    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError
    from kafka.net.compat import KafkaNetClient

    connected: list[Any] = []

    def connect(**configs: Any) -> Any:
        connected.append(KafkaNetClient(**configs))
        return connected[0]

    try:
        with KafkaAdminClient(
            bootstrap_servers=f"{host}:{port}",
            bootstrap_timeout_ms=int(timeout * 1000),
            request_timeout_ms=int(timeout * 1000),
            kafka_client=connect,
        ) as admin:
            return str(admin.describe_cluster()["cluster_id"])
    except KafkaError:
        # The constructor leaves its thread and sockets behind when the bootstrap fails.
        for client in connected:
            client.close()
            client._manager._net.stop()
        return None
