"""A real Apache Kafka on one machine, for laptops, demos and tests (the `broker` extra).

`start`, `stop` and `status` manage a background broker in a data folder; `TemporaryKafka` is a broker for
the length of a block.
"""

from .artifacts import KAFKA_VERSION
from .errors import LocalKafkaError, PortInUseError
from .properties import SecureListener
from .server import (
    BrokerInfo,
    BrokerState,
    BrokerStatus,
    default_data_dir,
    kill9,
    start,
    status,
    stop,
)
from .temporary import TemporaryKafka

__all__ = [
    "KAFKA_VERSION",
    "BrokerInfo",
    "BrokerState",
    "BrokerStatus",
    "LocalKafkaError",
    "PortInUseError",
    "SecureListener",
    "TemporaryKafka",
    "default_data_dir",
    "kill9",
    "start",
    "status",
    "stop",
]
