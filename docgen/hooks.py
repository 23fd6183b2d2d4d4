"""mkdocs: a page links to a file of the repository as a reader of the repository would; the site has a copy of it.

So a link to code works on a code host, in an editor and in the built pages, and one to a file that is gone fails
the strict build."""

from __future__ import annotations

import logging
import os.path
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docgen.blocks import ROOT
from docgen.rooms import rooms

log = logging.getLogger("mkdocs.plugins.docgen")

COPIES = "repository"
ROOMS = "<!-- rooms -->"
"""On a page, for the built pages only: in the repository the folders themselves show what they hold."""
_LINK = re.compile(r"(?<=\]\()(\.\./[^)\s#]+)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/ into links to copies; list the rooms where a page asks for it."""
    folder = os.path.dirname(page.file.src_uri)
    if ROOMS in markdown:
        markdown = markdown.replace(ROOMS, rooms(folder))

    def replaced(match: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join("docs", folder, match[1]))
        if path.startswith("docs/"):
            return match[1]
        return os.path.relpath(_copy(path, page, config, files), folder or ".")

    return _LINK.sub(replaced, markdown)


def _copy(path: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The copy's place in the site. Where there is no such file the build is told, and fails if it is strict."""
    # Browsers show text; what else there is they would save.
    target = f"{COPIES}/{path}.txt"
    if not (ROOT / path).is_file():
        log.warning("%s links to %s, which is not there", page.file.src_uri, path)
    elif files.get_file_from_path(target) is None:
        files.append(File.generated(config, target, content=(ROOT / path).read_bytes()))
    return target
