"""Every setting, once: defaults < TOML file < environment variables.

A setting ``[kafka] group_id`` is the variable ``STREAM_ENGINE_KAFKA_GROUP_ID``. ``KAFKA_BOOTSTRAP_SERVERS``
is read as well, because every Kafka user already has it set.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from stream_engine.util.places import default_board, default_run_dir, default_state_dir
from stream_engine.util.secret import Secret

PREFIX = "STREAM_ENGINE_"
SECRETS = frozenset({("kafka", "sasl_password"), ("kafka", "ssl_key_password")})
"""Settings that a configuration file may not hold: it is read, copied and committed by more people than use it."""

SHOWN = "shown"
"""Metadata of a default that depends on the machine: what the reference says instead of it."""


class ConfigError(ValueError):
    """A setting is unknown, has the wrong type or is out of range; the message names the setting."""


def _require(condition: object, setting: str, rule: str, value: object) -> None:
    if not condition:
        raise ConfigError(f"{setting} = {value!r}: must be {rule}")


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
        _require(bool(self.bootstrap_servers.strip()), "kafka.bootstrap_servers", "host:port[,host:port]", "")
        _require(self.partitions > 0, "kafka.partitions", "positive", self.partitions)
        _require(0 < self.bar_seconds <= 86_400, "kafka.bar_seconds", "1..86400", self.bar_seconds)
        _require(self.poll_records > 0, "kafka.poll_records", "positive", self.poll_records)
        _require(self.max_rebuild_records > 0, "kafka.max_rebuild_records", "positive", self.max_rebuild_records)
        factor = self.replication_factor
        _require(
            factor == -1 or factor > 0, "kafka.replication_factor", "positive, or -1 for the broker's own", factor
        )
        _require(self.session_timeout_ms > 0, "kafka.session_timeout_ms", "positive", self.session_timeout_ms)
        instance = self.group_instance_id
        _require(
            instance is None or (re.fullmatch(r"[A-Za-z0-9._-]{1,249}", instance) and instance not in {".", ".."}),
            "kafka.group_instance_id",
            "1 to 249 of A-Z a-z 0-9 . _ -",
            instance,
        )
        for name in ("bars_topic", "trades_topic", "windows_topic", "answers_topic"):
            _require(bool(getattr(self, name)), f"kafka.{name}", "a topic name", getattr(self, name))
        topics = [self.bars_topic, self.trades_topic, self.windows_topic, self.standing_topic, self.answers_topic]
        repeated = next((topic for topic in topics if topics.count(topic) > 1), None)
        if repeated is not None:
            raise ConfigError(f"kafka: {repeated!r} is named by two topic settings; each needs a topic of its own")
        for name in ("bars_retention_days", "trades_retention_days", "dead_letter_retention_days"):
            _require(getattr(self, name) >= 0, f"kafka.{name}", "zero or positive", getattr(self, name))
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


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The model and the budget of the process that runs it."""

    model: str = "embedded"
    """"embedded", a name of `models list`, a model directory, a GGUF file, or a hub id."""
    adapter: str = ""
    """LoRA adapter for the model: a name (`stream-engine models list`) or a folder."""
    calibration: str = ""
    """File of the gate's calibration. Empty: the one beside the model, where there is one; "none": the
    profile's tau."""
    device: str = "cpu"
    """torch's name of the device that runs the model."""
    dtype: str = "float32"
    """torch's name of the number type of weights and cells."""
    quantization: Literal["none", "int8", "nf4"] = "none"
    """Weights in 8 or 4 bits (bitsandbytes)."""
    threads: int = 0
    """CPU threads of the forward pass; 0 leaves one core to the other processes."""
    preposition: Literal["fused", "idle", "off"] = "fused"
    """When decision points are decoded: in the pass of the commit, in one of its own in the idle time after it
    (the paper's Algorithm 1), or never."""
    max_sessions: int = 64
    """Sessions with resident KV cells; further ones fall back to tokens only, least recently used first. What is
    ready of them is computed in idle time."""
    total_cells: int = 0
    """Cell budget (one cell = one token's KV over all layers); 0 sizes it for ``max_sessions``."""
    step_tokens: int = 512
    """Bound on the tokens of one step, hence on how long a waiting query waits."""
    commit_every: int = 4
    """A waiting commit joins every k-th query step, so that neither starves."""
    max_deferrals: int = 8
    """A rider may be left out of at most this many commits in a row."""
    promoted_questions: int = 2
    """Most frequent ad-hoc questions of a session that ride along with its commits; 0: none."""
    promotion_half_life_s: float = 300.0
    """After which an earlier question counts half."""
    quiet_records: int = 20_000
    """A session whose last window in the compacted topic is this many records of its partition old gets a
    new one, so that it does not make a rebuild long."""
    credits: int = 4096
    """Records that may be in flight between a consumer and the engine."""
    max_queries: int = 256
    """Queries in hand: those that wait for a step or for their freshness bounds. One more is refused (429)."""
    stuck_after_s: float = 10.0
    """Not ready when a work item is older than this."""
    check_integrity: bool = False
    """Check cells = tokens = boundary whenever idle (always on in the tests)."""

    def __post_init__(self) -> None:
        for name in ("max_sessions", "step_tokens", "commit_every", "quiet_records", "credits", "max_queries"):
            _require(getattr(self, name) > 0, f"engine.{name}", "positive", getattr(self, name))
        for name in ("threads", "total_cells", "max_deferrals", "promoted_questions"):
            _require(getattr(self, name) >= 0, f"engine.{name}", "zero or positive", getattr(self, name))
        for name in ("promotion_half_life_s", "stuck_after_s"):
            _require(getattr(self, name) > 0, f"engine.{name}", "positive", getattr(self, name))


@dataclass(frozen=True, slots=True)
class RiskSettings:
    """How the risk of the fast path is watched while it serves."""

    check_share: float = 0.02
    """Share of the gate's fast answers that is picked for a check against the full path in idle time, at most one
    a decision point; 0 switches it off."""
    budget: float = 0.0
    """False-accept rate that a class may have: share of the decision points asked about whose fast answer differs
    from the full path's; 0: what the calibration was made for, 0.02 without one."""
    level: float = 0.05
    """Probability of a false alarm within ``horizon`` checks of a class whose rate is within the budget."""
    horizon: int = 5_000
    """Checks that ``level`` is about."""
    tau_step: float = 1.0
    """By how much an alarm raises tau, in logits, before the next one closes the class."""
    state_file: Path = field(
        default_factory=lambda: default_state_dir() / "risk.json",
        metadata={SHOWN: "stream-engine/risk.json in $XDG_STATE_HOME or ~/.local/state"},
    )
    """What risk control has raised or closed, and its evidence, so that a restart changes neither: it must outlive
    the container (a volume in ``compose.yaml``) and the machine's restart. Services may share it."""

    def __post_init__(self) -> None:
        _require(0 <= self.check_share <= 1, "risk.check_share", "0..1", self.check_share)
        _require(0 <= self.budget < 1, "risk.budget", "less than 1, not negative", self.budget)
        _require(0 < self.level < 1, "risk.level", "between 0 and 1", self.level)
        for name in ("horizon", "tau_step"):
            _require(0 < getattr(self, name) < math.inf, f"risk.{name}", "positive, finite", getattr(self, name))


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """The ready board: shared memory between the engine and the API workers."""

    path: Path = field(default_factory=default_board, metadata={SHOWN: "stream-engine-UID.board in /dev/shm"})
    """The file of the ready board: on a tmpfs that engine and API share."""
    slots: int = 4096
    """Decision points; a full board is a counted miss."""
    max_sessions: int = 4096
    """Sessions on the board."""
    lease_s: float = 2.0
    """Readers refuse every slot once the engine's heartbeat is older than this."""

    def __post_init__(self) -> None:
        _require(self.slots > 0, "board.slots", "positive", self.slots)
        _require(self.max_sessions > 0, "board.max_sessions", "positive", self.max_sessions)
        _require(0 < self.lease_s <= 3600, "board.lease_s", "positive, at most an hour", self.lease_s)


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
            _require(value.startswith(("ipc://", "tcp://")), f"transport.{name}", "ipc://... or tcp://...", value)


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
    max_wait_ms: int = 30_000
    """Largest ``wait_ms`` of a query."""
    event_queue: int = 1000
    """Events a slow subscriber may fall behind before it is dropped."""
    heartbeat_s: float = 15.0
    """Between two heartbeats of an event stream that has nothing else to say."""

    def __post_init__(self) -> None:
        _require(0 <= self.port < 65536, "api.port", "0..65535", self.port)
        _require(self.workers > 0, "api.workers", "positive", self.workers)
        for name in ("engine_timeout_s", "max_body_bytes", "event_queue", "heartbeat_s"):
            _require(getattr(self, name) > 0, f"api.{name}", "positive", getattr(self, name))
        _require(self.max_wait_ms >= 0, "api.max_wait_ms", "zero or positive", self.max_wait_ms)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one deployment."""

    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    risk: RiskSettings = field(default_factory=RiskSettings)
    board: BoardSettings = field(default_factory=BoardSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    api: ApiSettings = field(default_factory=ApiSettings)

    def __post_init__(self) -> None:
        _require(
            self.engine.quiet_records < self.kafka.max_rebuild_records,
            "engine.quiet_records",
            f"less than kafka.max_rebuild_records = {self.kafka.max_rebuild_records}",
            self.engine.quiet_records,
        )

    @classmethod
    def load(cls, file: Path | None = None, env: Mapping[str, str] | None = None) -> Config:
        """Defaults, then ``file`` (TOML), then the environment. Raises ConfigError naming the setting."""
        values: dict[str, dict[str, Any]] = {}
        if file is not None:
            values = _read_toml(file)
        for section, name, text in _from_environment(os.environ if env is None else env):
            values.setdefault(section, {})[name] = text
        sections = {f.name: f.default_factory for f in fields(cls)}
        built: dict[str, Any] = {}
        for section, settings in values.items():
            kind = sections.get(section)
            if kind is None:
                raise ConfigError(f"[{section}]: no such section; there are {', '.join(sections)}")
            built[section] = _build(section, kind, settings)
        return cls(**built)


def _read_toml(file: Path) -> dict[str, dict[str, Any]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {file}: {error}") from error
    for section, settings in content.items():
        if not isinstance(settings, dict):
            raise ConfigError(f"{section}: belongs in a section, such as [engine]")
        for name in settings:
            if (section, name) in SECRETS:
                variable = f"{PREFIX}{section}_{name}".upper()
                raise ConfigError(
                    f"{section}.{name}: not taken from {file}, because it is secret: set {variable}, or name a "
                    f"file that holds only it in {section}.{name}_file"
                )
    return content


def _from_environment(env: Mapping[str, str]) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    if env.get("KAFKA_BOOTSTRAP_SERVERS"):
        found.append(("kafka", "bootstrap_servers", env["KAFKA_BOOTSTRAP_SERVERS"]))
    sections = {f.name for f in fields(Config)}
    for variable, text in env.items():
        section, _, name = variable.removeprefix(PREFIX).lower().partition("_")
        # Other STREAM_ENGINE_ variables (the config file's own path, the cache folder) are not settings.
        # An empty one is unset, as `${VARIABLE:-}` in a compose file makes it.
        if variable.startswith(PREFIX) and section in sections and text:
            found.append((section, name, text))
    return found


def _build(section: str, kind: Any, settings: dict[str, Any]) -> Any:
    known = {f.name for f in fields(kind)}
    for name in settings:
        if name not in known:
            raise ConfigError(f"{section}.{name}: no such setting; [{section}] has {', '.join(sorted(known))}")
    try:
        return msgspec.convert(settings, kind, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        message, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`") or "?"
        variable = f"({PREFIX}{section}_{name})".upper()
        allowed = _choices(get_type_hints(kind).get(name))
        if allowed and name in settings:
            rule = f"must be one of {', '.join(allowed)}"
            raise ConfigError(f"{section}.{name} = {settings[name]!r}: {rule} {variable}") from error
        raise ConfigError(f"{section}.{name}: {message} {variable}") from error


def _choices(hint: Any) -> tuple[str, ...]:
    """The values of a setting that takes one of a few."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((found for argument in get_args(hint) if (found := _choices(argument))), ())


def _decode(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError(f"expected {kind.__name__}")
