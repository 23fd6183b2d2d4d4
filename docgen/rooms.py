"""Every room of the code with its files, each by the first sentence of its docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from docgen.blocks import ROOT, prose, table

PACKAGES = ("stream_engine", "consumers", "query_api", "loadgen", "docgen")


def rooms(page_folder: str) -> str:
    """Markdown, a section a room; links are as of a page in ``page_folder`` of docs/."""
    up = "../" * (1 + len(Path(page_folder).parts))
    return "\n\n".join(section for package in PACKAGES for section in _sections(ROOT / package, up))


def _sections(folder: Path, up: str) -> Iterator[str]:
    files = sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")
    place = folder.relative_to(ROOT).as_posix()
    rows = [(f"[{file.name}]({up}{place}/{file.name})", _sentence(file)) for file in files]
    init = folder / "__init__.py"
    about = _sentence(init) if init.exists() else ""
    if rows:
        yield "\n\n".join(part for part in (f"### {place}/", about, table(("file", "is"), *rows)) if part)
    for inside in sorted(folder.iterdir()):
        if inside.is_dir() and inside.name != "__pycache__":
            yield from _sections(inside, up)


def _sentence(file: Path) -> str:
    """The first sentence of the docstring; empty where there is none."""
    text = prose((ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n\n")[0])
    return text.partition(". ")[0].rstrip(".") + "." if text else ""
