"""Settings of the brokers, their topics and the consumers that read them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stream_engine.config.rules import SHOWN, ConfigError, require
from stream_engine.util.places import default_run_dir
from stream_engine.util.secret import Secret


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Where records come from and where bad ones go."""

    bootstrap_servers: str = "127.0.0.1:9092"
    """Brokers, ``host:port[,host:port]``; also ``KAFKA_BOOTSTRAP_SERVERS``."""
    group_id: str = "stream-engine"
    """Consumer group."""
    bars_topic: str = "market.bars"
    """Topic of the bars."""
    trades_topic: str = "market.trades"
    """Topic of the trades."""
    bar_seconds: int = 60
    """Length of the bars that trades are made into."""
    bar_time: Literal["start", "end"] = "start"
    """Whether those bars are stamped with their start or their end."""
    open_bar: bool = False
    """Show the bar that trades are still coming for; else a bar is seen once a later trade closes it."""
    windows_topic: str = "stream-engine.windows"
    """Compacted: the window of each session. As many partitions as the bars topic."""
    standing_topic: str = "stream-engine.standing-queries"
    """Compacted, one partition. Empty: the engine alone keeps the standing queries, and a restart forgets them."""
    answers_topic: str = "stream-engine.answers"
    """Compacted: the newest answers of the standing queries."""
    dead_letter_suffix: str = ".dlq"
    """A topic's dead letters go to the topic with this at its end."""
    partitions: int = 4
    """Partitions of topics that this project creates; a topic that exists is taken as it is."""
    replication_factor: int = 1
    """Of topics that this project creates; -1: the broker's own."""
    bars_retention_days: int = 365
    """Of topics that this project creates, by the records' Kafka time stamps; 0: for ever."""
    trades_retention_days: int = 7
    """The same, for trades."""
    dead_letter_retention_days: int = 30
    """The same, for dead letters."""
    offset_reset: Literal["earliest", "latest", "fail"] = "earliest"
    """What to do where a partition has no committed offset, or one that has aged out."""
    poll_records: int = 500
    """Records of one poll."""
    max_rebuild_records: int = 100_000
    """A rebuild replays at most this many records of a partition."""
    session_timeout_ms: int = 10_000
    """After which the group takes a silent consumer for dead."""
    group_instance_id: str | None = None
    """Static membership: a consumer that comes back under its id within ``session_timeout_ms`` has its partitions
    again without a rebalance. Each consumer of the group needs an id of its own."""
    health_file: Path = field(
        default_factory=lambda: default_run_dir() / "consumer.health",
        metadata={SHOWN: "consumer.health in a folder of the user"},
    )
    """The consumer's sign of life, for ``stream-engine health consumer``; one for each consumer of a machine."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether the connection is encrypted (``SSL``), and whether the client says who it is (``SASL``)."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """How the client says who it is; needed with SASL."""
    sasl_username: str | None = None
    """Needed with SASL."""
    sasl_password: Secret | None = None
    """Only from the environment; a file holds ``sasl_password_file`` instead."""
    sasl_password_file: Path | None = None
    """A file that holds the password."""
    ssl_cafile: Path | None = None
    """Certificates (PEM) that the broker's is checked against; without it, those that the machine trusts."""
    ssl_certfile: Path | None = None
    """Certificate (PEM) of this client; its key may lie in the same file."""
    ssl_keyfile: Path | None = None
    """The certificate's key, where that is not in the same file."""
    ssl_key_password: Secret | None = None
    """Only from the environment; a file holds ``ssl_key_password_file`` instead."""
    ssl_key_password_file: Path | None = None
    """A file that holds the key's password."""
    ssl_check_hostname: bool = True
    """Whether the broker's certificate must be for the name that it is reached by."""

    def __post_init__(self) -> None:
        require(bool(self.bootstrap_servers.strip()), "kafka.bootstrap_servers", "host:port[,host:port]", "")
        require(self.partitions > 0, "kafka.partitions", "positive", self.partitions)
        require(0 < self.bar_seconds <= 86_400, "kafka.bar_seconds", "1..86400", self.bar_seconds)
        require(self.poll_records > 0, "kafka.poll_records", "positive", self.poll_records)
        require(self.max_rebuild_records > 0, "kafka.max_rebuild_records", "positive", self.max_rebuild_records)
        factor = self.replication_factor
        require(
            factor == -1 or factor > 0, "kafka.replication_factor", "positive, or -1 for the broker's own", factor
        )
        require(self.session_timeout_ms > 0, "kafka.session_timeout_ms", "positive", self.session_timeout_ms)
        instance = self.group_instance_id
        require(
            instance is None or (re.fullmatch(r"[A-Za-z0-9._-]{1,249}", instance) and instance not in {".", ".."}),
            "kafka.group_instance_id",
            "1 to 249 of A-Z a-z 0-9 . _ -",
            instance,
        )
        for name in ("bars_topic", "trades_topic", "windows_topic", "answers_topic"):
            require(bool(getattr(self, name)), f"kafka.{name}", "a topic name", getattr(self, name))
        topics = [self.bars_topic, self.trades_topic, self.windows_topic, self.standing_topic, self.answers_topic]
        repeated = next((topic for topic in topics if topics.count(topic) > 1), None)
        if repeated is not None:
            raise ConfigError(f"kafka: {repeated!r} is named by two topic settings; each needs a topic of its own")
        for name in ("bars_retention_days", "trades_retention_days", "dead_letter_retention_days"):
            require(getattr(self, name) >= 0, f"kafka.{name}", "zero or positive", getattr(self, name))
        self._check_security()

    @property
    def source_topics(self) -> tuple[str, str]:
        return self.bars_topic, self.trades_topic

    @property
    def dead_letter_topic(self) -> str:
        return self.bars_topic + self.dead_letter_suffix

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def _check_security(self) -> None:
        """What does not fit together is refused: a setting without effect would pass for protection."""
        uses = f"kafka.security_protocol = {self.security_protocol}"
        sasl = ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_password_file")
        tls = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password", "ssl_key_password_file")
        for used, what, names in ((self.uses_sasl, "SASL", sasl), (self.uses_tls, "TLS", tls)):
            for name in names:
                if not used and getattr(self, name) is not None:
                    raise ConfigError(f"kafka.{name}: has no effect, because {uses} is without {what}")
        if not self.uses_tls and not self.ssl_check_hostname:
            raise ConfigError(f"kafka.ssl_check_hostname: has no effect, because {uses} is without TLS")
        for name in ("sasl_password", "ssl_key_password"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ConfigError(f"kafka.{name}: kafka.{name}_file is set as well; keep one of them")
        if self.uses_sasl:
            for name in ("sasl_mechanism", "sasl_username"):
                if not getattr(self, name):
                    raise ConfigError(f"kafka.{name}: needed, because {uses}")
            if self.sasl_password is None and self.sasl_password_file is None:
                raise ConfigError(
                    f"kafka.sasl_password: needed, because {uses}; set STREAM_ENGINE_KAFKA_SASL_PASSWORD, or name "
                    "a file that holds it in kafka.sasl_password_file"
                )
        if self.ssl_certfile is None:
            for name in ("ssl_keyfile", "ssl_key_password", "ssl_key_password_file"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"kafka.{name}: is of use only with kafka.ssl_certfile, which is not set")
