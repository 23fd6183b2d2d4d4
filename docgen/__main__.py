"""``python -m docgen`` writes the generated parts of docs/reference anew; ``--check`` says which would change."""

from __future__ import annotations

import sys
from collections.abc import Callable

from docgen.blocks import DOCS, fill
from docgen.commands import commands_blocks
from docgen.metrics import metrics_blocks
from docgen.settings import settings_blocks
from docgen.topics import topics_blocks

PAGES: dict[str, Callable[[], dict[str, str]]] = {
    "reference/settings.md": settings_blocks,
    "reference/metrics.md": metrics_blocks,
    "reference/command-line.md": commands_blocks,
    "reference/topics.md": topics_blocks,
}


def stale() -> dict[str, str]:
    """Pages that are not what the generator gives, as they should be."""
    found = {}
    for name, blocks in PAGES.items():
        page = (DOCS / name).read_text(encoding="utf-8")
        filled = fill(page, blocks())
        if filled != page:
            found[name] = filled
    return found


def main() -> int:
    check = "--check" in sys.argv[1:]
    for name, text in stale().items():
        print(f"docs/{name}", "is not what the code says: run `make docs`" if check else "written")
        if not check:
            (DOCS / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
