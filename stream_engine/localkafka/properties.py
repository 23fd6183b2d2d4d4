"""The broker's configuration files, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class SecureListener:
    """A further port of the broker, which speaks another security protocol than plain text.

    `settings` are the listener's own Kafka settings, without their `listener.name.NAME.` prefix.
    """

    protocol: str
    port: int
    settings: Mapping[str, str]

    def properties(self) -> dict[str, str]:
        return {f"listener.name.{self.protocol.lower()}.{name}": value for name, value in self.settings.items()}


def server_properties(
    port: int, controller_port: int, log_dir: Path, secure: Sequence[SecureListener] = ()
) -> str:
    """`server.properties` of a single KRaft node that is broker and controller, on the loopback address only."""
    further = "".join(f",{listener.protocol}://{HOST}:{listener.port}" for listener in secure)
    mapped = "".join(f",{listener.protocol}:{listener.protocol}" for listener in secure)
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}{further}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}{further}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{mapped}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": _escape(str(log_dir)),
        # One node can hold one replica.
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # The defaults make 150 partitions of internal topics, each with open files and a recovery at start.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 2,
        "share.coordinator.state.topic.num.partitions": 1,
        # A broker that was killed may register again only when its old session has run out (default 9 s).
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 1000,
        "group.initial.rebalance.delay.ms": 0,
        # Historical records carry their event time: retention by age would delete them as soon as they arrive.
        "log.retention.ms": -1,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "background.threads": 2,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    for listener in secure:
        settings |= listener.properties()
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def log4j2_properties(log_file: Path) -> str:
    """A rolling log of the broker: 4 files of 10 MB at most."""
    settings = {
        "status": "warn",
        "appender.file.type": "RollingFile",
        "appender.file.name": "file",
        "appender.file.fileName": _escape(str(log_file)),
        "appender.file.filePattern": _escape(f"{log_file}.%i"),
        "appender.file.layout.type": "PatternLayout",
        "appender.file.layout.pattern": "%d{ISO8601} %-5p %c{1}: %m%n",
        "appender.file.policies.type": "Policies",
        "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
        "appender.file.policies.size.size": "10MB",
        "appender.file.strategy.type": "DefaultRolloverStrategy",
        "appender.file.strategy.max": 3,
        "rootLogger.level": "info",
        "rootLogger.appenderRef.file.ref": "file",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\")
