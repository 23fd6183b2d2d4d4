"""What the pages say of settings, metrics, commands, topics, routes and reasons is what the code says."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from consumers.wire.reasons import Reason
from docgen.__main__ import PAGES, stale
from docgen.blocks import DOCS, fill
from docgen.settings import docstrings, settings_blocks
from query_api.app import create_app
from query_api.schemas import QueryBody
from stream_engine.config.config import Config
from stream_engine.messages import Answer, SessionInfo


def page(name: str) -> str:
    return (DOCS / name).read_text()


def first_cells(text: str) -> list[str]:
    """What stands in backticks in the first column of the tables of ``text``."""
    return [name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in re.findall(r"`([^`]+)`", row)]


def part(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_generated_parts_are_what_the_code_says() -> None:
    assert not stale(), f"run `make docs`, and look at what changed: {', '.join(stale())}"


def test_every_generated_page_has_its_blocks_filled() -> None:
    for name in PAGES:
        blocks = re.findall(r"<!-- generated: (\S+) -->(.*?)<!-- /generated: \1 -->", page(name), re.S)
        assert blocks
        assert all(len(text.strip()) > 100 for _, text in blocks), name


def test_a_page_and_its_blocks_have_the_same_names() -> None:
    text = "a\n<!-- generated: x -->\nold\n<!-- /generated: x -->\nb\n"
    assert fill(text, {"x": "new"}) == "a\n<!-- generated: x -->\n\nnew\n\n<!-- /generated: x -->\nb\n"
    with pytest.raises(ValueError, match="blocks"):
        fill(text, {"x": "new", "y": "more"})
    with pytest.raises(ValueError, match="has no <!-- /generated: x -->"):
        fill("<!-- generated: x -->", {"x": "new"})


def test_the_page_of_settings_names_every_setting_and_no_other() -> None:
    settings = {
        f"{section.name}.{setting.name}"
        for section in fields(Config)
        for setting in fields(type(getattr(Config(), section.name)))
    }
    documented = first_cells(page("reference/settings.md"))
    assert sorted(documented) == sorted(settings)


def test_the_defaults_do_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = settings_blocks()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: 4711)
    assert settings_blocks() == here


@dataclass(frozen=True, slots=True)
class Undocumented:
    """A section."""

    told: int = 1
    """What it is for."""
    untold: int = 2


def test_a_setting_without_a_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Undocumented\.untold has no docstring"):
        docstrings(Undocumented)


def test_the_page_of_the_api_names_every_route_and_no_other() -> None:
    operations = {
        f"{method.upper()} {path}"
        for path, methods in create_app(Config()).openapi()["paths"].items()
        for method in methods
    }
    documented = re.findall(r"^\| `([A-Z]+ /\S*)` \|", page("reference/http-api.md"), re.M)
    assert sorted(documented) == sorted(operations)


@pytest.mark.parametrize(
    ("heading", "kind"), [("A question", QueryBody), ("An answer", Answer), ("A session", SessionInfo)]
)
def test_the_page_of_the_api_names_every_field_and_no_other(heading: str, kind: type) -> None:
    documented = first_cells(part(page("reference/http-api.md"), heading))
    assert sorted(documented) == sorted(kind.__struct_encode_fields__)  # type: ignore[attr-defined]


def test_the_page_of_topics_names_every_reason_and_no_other() -> None:
    documented = first_cells(part(page("reference/topics.md"), "Dead letters"))
    assert documented[1:] == [reason.value for reason in Reason]
