"""What every command shares: the global options, settings, logging, and failures told in one line."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from stream_engine.config import Config, ConfigError

LOG_LEVELS = ("debug", "info", "warning", "error")
SETTINGS_WRONG = 2
"""Exit status of a wrong setting: trying again cannot help."""
TERMINATED = 143
_CHATTY = ("kafka", "httpx", "httpcore", "asyncio")


url_option = click.option(
    "--url",
    envvar="STREAM_ENGINE_URL",
    help="Address of the API; also $STREAM_ENGINE_URL. Default: [api] host and port of the settings.",
)


class Failure(click.ClickException):
    """Ends the command with one line that says what is wrong and what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


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


def wrong_setting(error: ConfigError) -> Failure:
    return Failure(str(error), SETTINGS_WRONG)


@contextmanager
def stop_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP set ``stop``; what was there before is put back at the end."""

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_on_terminate() -> None:
    """Make SIGTERM unwind the command as Ctrl-C does, so that what it started is cleaned up."""

    def handle(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, handle)
