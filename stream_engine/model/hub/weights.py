"""Which files decide what a model computes, and the one hash that tells two sets of them apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

WEIGHTS = (".safetensors", ".gguf", ".bin")
"""Endings of the files that hold weights, an adapter's included."""

CONFIGURATIONS = ("config.json", "adapter_config.json")
"""How the weights are used: the scale of an adapter or of the positions changes every logit."""


def weights_sha256(*directories: Path) -> str:
    """Hash of the names and contents of weights and configurations in a model's folders (hex)."""
    total = hashlib.sha256()
    for directory in directories:
        files = (path for path in directory.iterdir() if path.suffix in WEIGHTS or path.name in CONFIGURATIONS)
        for path in sorted(files):
            with path.open("rb") as file:
                total.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
