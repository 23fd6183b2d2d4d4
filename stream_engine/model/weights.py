"""Which files are a model's weights, and the one hash that tells two sets of them apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

WEIGHTS = (".safetensors", ".gguf", ".bin")
"""Endings of the files that hold weights, an adapter's included."""


def weights_sha256(*directories: Path) -> str:
    """Hash of the names and contents of the weights in a model's folders (hex); that of nothing without any."""
    total = hashlib.sha256()
    for directory in directories:
        for path in sorted(path for path in directory.iterdir() if path.suffix in WEIGHTS):
            with path.open("rb") as file:
                total.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
