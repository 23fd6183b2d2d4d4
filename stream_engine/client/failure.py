"""Failures of a command, told in one line."""

from __future__ import annotations

import click

from stream_engine.config.rules import ConfigError

SETTINGS_WRONG = 2
"""Exit status of a wrong setting: trying again cannot help."""


class Failure(click.ClickException):
    """Ends the command with one line that says what is wrong and what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


def wrong_setting(error: ConfigError) -> Failure:
    return Failure(str(error), SETTINGS_WRONG)
