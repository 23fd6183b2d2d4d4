"""The built documentation: strictly, with every link leading somewhere, and nothing loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docgen.rooms import PACKAGES

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_LOADED = {"canonical", "prev", "next"}


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT / "mkdocs.yml", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@dataclass
class Seen(HTMLParser):
    """What one page has and wants."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.ids.add(of.get("id", ""))
        self.classes.update(of.get("class", "").split())
        if tag == "a" and "href" in of:
            self.links.append(of["href"])
        if tag in LOADED and LOADED[tag] in of and of.get("rel") not in NOT_LOADED:
            self.loaded.append(of[LOADED[tag]])


def read(file: Path) -> Seen:
    seen = Seen()
    seen.feed(file.read_text())
    return seen


def pages(site: Path) -> Iterator[tuple[Path, Seen]]:
    for file in sorted(site.rglob("*.html")):
        if file.name != "404.html":  # a server's: its links are absolute
            yield file, read(file)


def broken(site: Path) -> list[str]:
    known = dict(pages(site))
    found = []
    for file, seen in known.items():
        for link in seen.links + seen.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file() or (parts.fragment and target.suffix == ".html"
                                        and unquote(parts.fragment) not in known[target].ids):  # fmt: skip
                found.append(f"{file.relative_to(site)}: {link}")
    return found


def test_every_link_leads_somewhere(site: Path) -> None:
    assert len(list(pages(site))) > 15
    assert broken(site) == []


def test_links_to_code_lead_to_its_text(site: Path) -> None:
    copies = {file.relative_to(site / "repository") for file in (site / "repository").rglob("*.txt")}
    assert Path("compose.yaml.txt") in copies
    for copy in copies:
        assert (site / "repository" / copy).read_bytes() == (ROOT / str(copy).removesuffix(".txt")).read_bytes()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for file, seen in pages(site):
        assert [address for address in seen.loaded if urlsplit(address).netloc] == [], file
        assert "mermaid" not in seen.classes, f"{file}: its diagrams would load a script from a CDN"
    for style in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", style.read_text()) == [], style


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[no page](gone.md)", "gone.md"),
        ("[no heading](index.md#gone)", "gone"),
        ("[no file](../gone.py)", "gone.py"),
    ],
)
def test_a_link_to_nothing_fails_the_build(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{text}\n")
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[0]
    settings = settings.replace("name: material", "name: mkdocs").replace("  - offline", "  #")
    settings = settings.replace("docgen/hooks.py", str(ROOT / "docgen" / "hooks.py"))
    (tmp_path / "mkdocs.yml").write_text(settings)
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode != 0
    assert fault in built.stdout + built.stderr


def test_the_page_of_the_rooms_has_every_file_of_the_code(site: Path) -> None:
    listed = [link for link in read(site / "explanation" / "rooms.html").links if link.endswith(".py.txt")]
    names = {unquote(link).removeprefix("../repository/").removesuffix(".txt") for link in listed}
    there = {
        file.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if file.name != "__init__.py"
    }
    assert names == there
