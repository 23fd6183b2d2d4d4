"""Generated parts of a page: what stands between two markers, so that people write the rest of it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def fill(page: str, blocks: dict[str, str]) -> str:
    """The page with each of its blocks as given. Raises ValueError where page and blocks do not have the same."""
    found = re.findall(r"<!-- generated: (\S+) -->", page)
    if sorted(found) != sorted(blocks):
        raise ValueError(f"the page has the generated blocks {found}, and there are {list(blocks)}")
    for name, text in blocks.items():
        start, end = f"<!-- generated: {name} -->", f"<!-- /generated: {name} -->"
        if end not in page:
            raise ValueError(f"the page has no {end}")
        before, rest = page.split(start)
        page = f"{before}{start}\n\n{text.strip()}\n\n{end}{rest.split(end)[1]}"
    return page


def table(*rows: tuple[str, ...]) -> str:
    """Markdown; the first row is the head."""
    head, *body = rows
    lines = [head, ("---",) * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").strip() for cell in row) + " |" for row in lines)


def prose(docstring: str) -> str:
    """One paragraph of Markdown from a docstring."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(docstring.split()))
