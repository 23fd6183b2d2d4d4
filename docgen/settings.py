"""The table of settings: names, kinds, defaults and meanings as ``stream_engine/config/`` has them."""

from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from docgen.blocks import prose, table
from stream_engine.config.config import Config
from stream_engine.config.rules import SHOWN
from stream_engine.config.sources import PREFIX, SECRETS
from stream_engine.util.secret import Secret

_KINDS = {int: "whole number", float: "number", bool: "true, false", str: "text", Path: "path", Secret: "secret"}


def settings_blocks() -> dict[str, str]:
    """One block a section: its sentence, and a row a setting."""
    kinds = get_type_hints(Config)
    return {section.name: _section(section.name, kinds[section.name]) for section in fields(Config)}


def _section(name: str, kind: Any) -> str:
    meanings, hints = docstrings(kind), get_type_hints(kind)
    rows = [
        (
            f"`{name}.{setting.name}`",
            _values(hints[setting.name]),
            _default(name, setting),
            prose(meanings[setting.name]),
        )
        for setting in fields(kind)
    ]
    head = ("setting", "values", "default", "meaning")
    return f"{prose(inspect.getdoc(kind) or '')}\n\n{table(head, *rows)}"


def docstrings(kind: type) -> dict[str, str]:
    """The string below each field of a dataclass. Raises ValueError for a field without one."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match after:
                case ast.Expr(ast.Constant(str() as text)):
                    found[statement.target.id] = text
                case _:
                    raise ValueError(f"{kind.__name__}.{statement.target.id} has no docstring")
    return found


def _values(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if hint in _KINDS:
        return _KINDS[hint]
    (kind,) = (member for member in get_args(hint) if member is not type(None))
    return _values(kind)


def _default(section: str, setting: Field[Any]) -> str:
    if (section, setting.name) in SECRETS:
        return f"not set; `{PREFIX}{section.upper()}_{setting.name.upper()}`"
    if SHOWN in setting.metadata:
        return str(setting.metadata[SHOWN])
    if setting.default is MISSING:
        raise ValueError(f"{section}.{setting.name}: the default is made when it is needed: say which ({SHOWN})")
    if setting.default is None or setting.default == "":
        return "not set"
    return f"`{str(setting.default).lower() if isinstance(setting.default, bool) else setting.default}`"
