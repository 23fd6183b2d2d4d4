"""Text of others on a terminal: what a symbol, a question or an answer holds is shown, and never carried out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def shown(text: str) -> str:
    """With everything that a terminal would obey, or not show, written as its escape (``\\x1b``, ``\\u202e``)."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def cell(text: str, style: str = "") -> Text:
    """A cell of a table: brackets are brackets, no markup."""
    from rich.text import Text

    return Text(shown(text), style)


def keep_writing() -> None:
    """What the terminal's coding does not have is written as its escape, where Python would end the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
