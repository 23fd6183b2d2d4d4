"""What every command shares: the global options, settings, logging, and failures told in one line."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import click

from stream_engine.client.failure import wrong_setting
from stream_engine.config.config import Config
from stream_engine.config.rules import ConfigError

LOG_LEVELS = ("debug", "info", "warning", "error")
_CHATTY = ("kafka", "httpx", "httpcore", "asyncio")


url_option = click.option(
    "--url",
    envvar="STREAM_ENGINE_URL",
    help="Address of the API; also $STREAM_ENGINE_URL. Default: [api] host and port of the settings.",
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options before the command's name."""

    config_file: Path | None
    log_level: str

    def load(self) -> Config:
        """The settings. Raises a Failure that names the wrong one."""
        try:
            return Config.load(self.config_file)
        except ConfigError as error:
            raise wrong_setting(error) from error

    def log_as(self, process: str) -> None:
        """Log to stderr, each line marked with the process it comes from."""
        logging.basicConfig(
            level=self.log_level.upper(),
            format=f"%(asctime)s {process:8s} %(levelname)-7s %(message)s",
            datefmt="%H:%M:%S",
        )
        if self.log_level != "debug":
            for name in _CHATTY:
                logging.getLogger(name).setLevel(logging.WARNING)

    def arguments(self) -> list[str]:
        """These options for a process of the same kind."""
        chosen = [] if self.config_file is None else ["--config", str(self.config_file)]
        return [*chosen, "--log-level", self.log_level]
