"""The topics that the consumer needs: made where they are absent, taken as they are where they exist."""

from __future__ import annotations

import logging

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

from stream_engine.config import KafkaSettings

log = logging.getLogger(__name__)


class BrokerUnreachable(RuntimeError):
    """No Kafka broker answered at the configured address."""


def ensure_topics(settings: KafkaSettings, timeout_s: float = 15.0) -> list[str]:
    """Create the bars topic and its dead-letter topic where absent; the names of those made.

    Raises BrokerUnreachable, naming the address and what to do."""
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=settings.bootstrap_servers.split(","),
            client_id=f"{settings.group_id}-topics",
            bootstrap_timeout_ms=int(timeout_s * 1000),
        )
    except (KafkaTimeoutError, OSError) as error:
        raise BrokerUnreachable(
            f"no Kafka broker answers at {settings.bootstrap_servers} ({type(error).__name__}): start one "
            "(stream-engine kafka start), or name yours in KAFKA_BOOTSTRAP_SERVERS"
        ) from error
    try:
        wanted = {settings.bars_topic: settings.partitions, settings.dead_letter_topic: 1}
        absent = {name: count for name, count in wanted.items() if name not in set(admin.list_topics())}
        made = [name for name, count in absent.items() if _create(admin, name, count, settings.replication_factor)]
        admin.wait_for_topics(list(wanted))
        return made
    finally:
        admin.close()


def _create(admin: KafkaAdminClient, name: str, partitions: int, replication_factor: int) -> bool:
    options = {"num_partitions": partitions, "replication_factor": replication_factor}
    try:
        admin.create_topics({name: options}, timeout_ms=10_000)
    except TopicAlreadyExistsError:
        return False  # another process was quicker
    except KafkaError as error:
        raise RuntimeError(
            f"topic {name} ({partitions} partitions, replication factor {replication_factor}) cannot be made: {error}"
        ) from error
    log.info("made topic %s with %d partitions", name, partitions)
    return True
