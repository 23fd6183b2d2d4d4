"""Where values come from: a TOML file and the environment; each becomes its setting's type or is refused by name.

A setting ``[kafka] group_id`` is the variable ``STREAM_ENGINE_KAFKA_GROUP_ID``. ``KAFKA_BOOTSTRAP_SERVERS``
is read as well, because every Kafka user already has it set.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from stream_engine.config.rules import ConfigError
from stream_engine.util.secret import Secret

PREFIX = "STREAM_ENGINE_"
SECRETS = frozenset({("kafka", "sasl_password"), ("kafka", "ssl_key_password")})
"""Settings that a configuration file may not hold: it is read, copied and committed by more people than use it."""

_NOW_IN_BYTES = "engine.kv_memory says how much memory sessions may take, such as 4GiB or 25%"
RETIRED = {("engine", "max_sessions"): _NOW_IN_BYTES, ("engine", "total_cells"): _NOW_IN_BYTES}
"""Settings of earlier versions, and what to set instead."""


def read_toml(file: Path) -> dict[str, dict[str, Any]]:
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


def read_environment(env: Mapping[str, str], sections: Collection[str]) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    if env.get("KAFKA_BOOTSTRAP_SERVERS"):
        found.append(("kafka", "bootstrap_servers", env["KAFKA_BOOTSTRAP_SERVERS"]))
    for variable, text in env.items():
        section, _, name = variable.removeprefix(PREFIX).lower().partition("_")
        # Other STREAM_ENGINE_ variables (the config file's own path, the cache folder) are not settings.
        # An empty one is unset, as `${VARIABLE:-}` in a compose file makes it.
        if variable.startswith(PREFIX) and section in sections and text:
            found.append((section, name, text))
    return found


def build_section(section: str, kind: Any, settings: dict[str, Any]) -> Any:
    known = {f.name for f in fields(kind)}
    for name in settings:
        if (section, name) in RETIRED:
            raise ConfigError(f"{section}.{name}: there is no such setting any more: {RETIRED[section, name]}")
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
