"""All settings of one deployment: defaults < TOML file < environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stream_engine.config.api import ApiSettings
from stream_engine.config.board import BoardSettings
from stream_engine.config.engine import EngineSettings
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.life import LifeSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.config.rules import ConfigError, require
from stream_engine.config.sources import build_section, read_environment, read_toml
from stream_engine.config.transport import TransportSettings


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one deployment."""

    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    risk: RiskSettings = field(default_factory=RiskSettings)
    board: BoardSettings = field(default_factory=BoardSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    life: LifeSettings = field(default_factory=LifeSettings)

    def __post_init__(self) -> None:
        require(
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
            values = read_toml(file)
        for section, name, text in read_environment(
            os.environ if env is None else env, [f.name for f in fields(cls)]
        ):
            values.setdefault(section, {})[name] = text
        sections = {f.name: f.default_factory for f in fields(cls)}
        built: dict[str, Any] = {}
        for section, settings in values.items():
            kind = sections.get(section)
            if kind is None:
                raise ConfigError(f"[{section}]: no such section; there are {', '.join(sections)}")
            built[section] = build_section(section, kind, settings)
        return cls(**built)
