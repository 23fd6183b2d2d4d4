"""What a setting may be: the refusal that names it, and how a default of the machine is shown."""

from __future__ import annotations

SHOWN = "shown"
"""Metadata of a default that depends on the machine: what the reference says instead of it."""


class ConfigError(ValueError):
    """A setting is unknown, has the wrong type or is out of range; the message names the setting."""


def require(condition: object, setting: str, rule: str, value: object) -> None:
    if not condition:
        raise ConfigError(f"{setting} = {value!r}: must be {rule}")
