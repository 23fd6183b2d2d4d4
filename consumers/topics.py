"""The topics that the consumer needs: made where they are absent, taken as they are where they exist."""

from __future__ import annotations

import logging
import socket
import time

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

from stream_engine.config import KafkaSettings

log = logging.getLogger(__name__)


class BrokerUnreachable(RuntimeError):
    """No Kafka broker answered at the configured address."""


class TopicMissing(RuntimeError):
    """The topic is not there; the message lists those that are."""


def ensure_topics(settings: KafkaSettings, timeout_s: float = 15.0) -> list[str]:
    """Create the bars topic and its dead-letter topic where absent; the names of those made.

    Raises BrokerUnreachable, naming the address and what to do."""
    admin = _admin(settings.bootstrap_servers, timeout_s)
    try:
        wanted = {settings.bars_topic: settings.partitions, settings.dead_letter_topic: 1}
        existing = set(admin.list_topics())
        absent = {name: count for name, count in wanted.items() if name not in existing}
        made = [name for name, count in absent.items() if _create(admin, name, count, settings.replication_factor)]
        admin.wait_for_topics(list(wanted))
        return made
    finally:
        admin.close()


def require_topic(bootstrap_servers: str, topic: str, timeout_s: float = 5.0) -> None:
    """Raises TopicMissing, or BrokerUnreachable.

    Writing to an absent topic would have the broker make one up, with its own number of partitions: kafka-python
    3.0.12 ignores ``allow_auto_create_topics=False``."""
    admin = _admin(bootstrap_servers, timeout_s)
    try:
        topics = sorted(admin.list_topics())
    finally:
        admin.close()
    if topic not in topics:
        shown = ", ".join(name for name in topics if not name.startswith("__"))[:300] or "none"
        raise TopicMissing(f"no topic {topic} at {bootstrap_servers}; there are: {shown}")


def _admin(bootstrap_servers: str, timeout_s: float) -> KafkaAdminClient:
    # Plain connections first: the client leaves its thread and sockets behind when it finds no broker.
    _wait_for_port(bootstrap_servers, timeout_s)
    try:
        return KafkaAdminClient(
            bootstrap_servers=bootstrap_servers.split(","),
            client_id="stream-engine-topics",
            bootstrap_timeout_ms=int(timeout_s * 1000),
        )
    except KafkaTimeoutError as error:
        raise _unreachable(bootstrap_servers, "it accepts connections but does not answer") from error


def _wait_for_port(bootstrap_servers: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        for address in bootstrap_servers.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
                return
            except (OSError, ValueError) as error:
                cause = str(error)
        if time.monotonic() >= deadline:
            raise _unreachable(bootstrap_servers, cause)
        time.sleep(0.3)


def _unreachable(bootstrap_servers: str, cause: str) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"no Kafka broker at {bootstrap_servers} ({cause}): start one (stream-engine kafka start), or name yours, "
        "as host:port, in KAFKA_BOOTSTRAP_SERVERS"
    )


def _create(admin: KafkaAdminClient, name: str, partitions: int, replication_factor: int) -> bool:
    options = {"num_partitions": partitions, "replication_factor": replication_factor}
    try:
        admin.create_topics({name: options}, timeout_ms=10_000)
    except TopicAlreadyExistsError:
        return False  # another process was quicker
    except KafkaError as error:
        raise RuntimeError(
            f"topic {name} ({partitions} partitions, {replication_factor} replicas) cannot be made: {error}"
        ) from error
    log.info("made topic %s with %d partitions", name, partitions)
    return True
