"""Waits until its parent closes the pipe, by will or by death; then kills that parent's temporary broker."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from . import server


def main(data_dir: Path) -> None:
    """Blocks on stdin; then ends the broker of `data_dir` and removes the folder."""
    sys.stdin.buffer.read()
    server.kill9(data_dir)
    shutil.rmtree(data_dir, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
