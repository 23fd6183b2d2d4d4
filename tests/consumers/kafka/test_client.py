"""Looking whether a broker lets this client in, by several threads at a time."""

from __future__ import annotations

import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from consumers.kafka.client import BrokerUnreachable, check_access
from stream_engine.config.kafka import KafkaSettings


def test_looks_at_a_time_leave_the_clients_log_as_it_was() -> None:
    """A server that takes connections and says nothing, so that each look lasts as long as it may."""

    def look(timeout_s: float) -> None:
        with suppress(BrokerUnreachable):
            check_access(KafkaSettings(bootstrap_servers=f"127.0.0.1:{mute.getsockname()[1]}"), timeout_s)

    logger = logging.getLogger("kafka")
    before = logger.level
    with socket.create_server(("127.0.0.1", 0)) as mute, ThreadPoolExecutor(3) as pool:
        list(pool.map(look, (0.3, 0.9, 0.6)))
    assert logger.level == before
