"""Which files are a model's weights, and the one hash that tells two sets of them apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

WEIGHTS = (".safetensors", ".gguf", ".bin")
"""Endings of the files that hold weights, an adapter's included."""


def weights_sha256(directory: Path) -> str:
    """Hash of the names and contents of a model folder's weights (hex); that of nothing where it has none."""
    total = hashlib.sha256()
    for path in sorted(path for path in directory.iterdir() if path.suffix in WEIGHTS):
        with path.open("rb") as file:
            total.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
