"""The README, and what else is read in the repository itself: short, true of the tree, with links that hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    file
    for folder in ("", "docs", "stream_engine", "consumers", "query_api", "loadgen", "tests")
    for file in ((ROOT / folder).rglob("*.md") if folder else ROOT.glob("*.md"))
)
ROOMS = ("stream_engine", "consumers", "query_api", "loadgen", "docgen", "docs", "tests", "deploy")
NEWCOMERS = (
    "Where is the gate?",
    "What happens when a consumer dies?",
    "Where would I add a vendor format?",
    "What may the API process import?",
    "How is tau chosen?",
)


def prose(file: Path) -> str:
    """Without what stands in fences."""
    return re.sub(r"^```.*?^```", "", file.read_text(), flags=re.M | re.S)


def anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(file), re.M)
    return {slugify(heading.replace("`", ""), "-") for heading in headings}


def dead_links(file: Path) -> list[str]:
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(file)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def misnamed(file: Path) -> list[str]:
    """Links that say another file's name than that of the file they lead to, and paths that are not there."""
    text = prose(file)
    named = re.findall(r"\[([\w/-]+\.(?:py|md|json|txt|toml|yaml))\]\(([^)#\s]+)", text)
    paths = re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`", text)
    wrong = [name for name, link in named if not f"/{link}".endswith(f"/{name}")]
    return wrong + [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_is_named_has_that_name(file: Path) -> None:
    assert misnamed(file) == []


def test_a_wrong_name_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    links = "[gate.py](../gates.py) [gate.py](gate.py) [a/gate.py](../b/a/gate.py) [b/gate.py](../a/gate.py)"
    file.write_text(f"{links} `docs/gone.md` `docs/` `x/docs/y`\n")
    assert misnamed(file) == ["gate.py", "b/gate.py", "docs/gone.md"]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere_in_the_repository_too(file: Path) -> None:
    assert dead_links(file) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    links = "[a](#one-two) [b](#three) [c](gone.md) [d](page.md#one-two)"
    file.write_text(f"# One `two`\n{links}\n```\n[e](gone)\n```\n")
    assert dead_links(file) == ["#three", "gone.md"]


def rooms_of_the_readme() -> set[str]:
    section = (ROOT / "README.md").read_text().partition("\n## Rooms\n")[2]
    tree = section.partition("```\n")[2].partition("\n```")[0]
    rooms, parents = set(), [""]
    for line in tree.splitlines():
        room = re.match(r"( *)([\w-]+)/(?: |$)", line)
        if room is not None:
            depth = len(room[1]) // 2
            parents[depth + 1 :] = [f"{parents[depth]}{room[2]}/"]
            rooms.add(parents[depth + 1])
    return rooms


def rooms_on_disk() -> set[str]:
    """Folders of the repository, and inside the packages those that hold code; tests mirror them."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()} | {"__pycache__"}
    top = {folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name[0] != "."}
    top = {folder for folder in top if folder.name not in ignored and not folder.name.endswith(".egg-info")}
    inside = {
        file.parent for package in top if (package / "__init__.py").exists() for file in package.rglob("*.py")
    }
    return {f"{folder.relative_to(ROOT)}/" for folder in top | inside}


def test_the_tree_of_the_readme_is_the_tree_on_disk() -> None:
    told, there = rooms_of_the_readme(), rooms_on_disk()
    assert told - there == set(), "told by the README, not on disk"
    assert there - told == set(), "on disk, not told by the README"


def test_what_a_newcomer_asks_is_one_click_from_the_front_page() -> None:
    front = ROOT / "docs" / "index.md"
    links = dict(re.findall(r"^\| (.*?\?) \| \[.*?\]\((.*?)\) \|$", front.read_text(), re.M))
    assert set(NEWCOMERS) <= set(links)
    for question in NEWCOMERS:
        page, _, anchor = links[question].partition("#")
        assert anchor in anchors(front.parent / page), f"{question}: a page, but not the place on it"


def test_the_order_of_the_readmes_rooms_is_the_one_that_the_imports_are_held_to() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contracts = settings["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["stream_engine"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = readme.partition("\n## Rooms\n")[2].partition("\nconsumers/")[0]
    told = re.findall(r"^  (\w+)/", tree, re.M)
    assert told == list(reversed(layers))
