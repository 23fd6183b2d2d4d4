"""Text of others on a terminal: shown as it is, never carried out."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from stream_engine.client.http import session_path
from stream_engine.client.shown import cell, shown


@pytest.mark.parametrize("text", ["AAPL", "日経 225", "أرامكو", "🚀", "e\u0301", "[red]", "back\\slash", "a'b\""])
def test_what_is_printable_stays(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\r\nb\t", "a\\r\\nb\\t"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, escaped: str) -> None:
    assert shown(text) == escaped


@pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", "[/nothing]", ":rocket:", "[link=http://x]y[/link]"])
def test_markup_is_text_in_a_table(text: str) -> None:
    out = StringIO()
    table = Table(box=None)
    table.add_column("session")
    table.add_row(cell(text))
    Console(file=out, width=100).print(table)
    assert text in out.getvalue()


@pytest.mark.parametrize(
    ("name", "path"),
    [("..", "%2E%2E"), (".", "%2E"), ("BRK.B", "BRK.B"), ("a/../b", "a%2F..%2Fb"), ("50%", "50%25")],
)
def test_a_name_of_dots_is_no_step_up_the_path(name: str, path: str) -> None:
    assert session_path(name) == f"/v1/sessions/{path}"
