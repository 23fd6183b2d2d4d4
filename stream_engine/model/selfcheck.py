"""Looks at a model folder, loads it as the engine would, and says what it found, one JSON line each.

Usage: ``python -m stream_engine.model.selfcheck MODEL DEVICE [ADAPTER]``, a process of its own. The quick looks
come first, for a caller that does not wait for all. The status is not 0 where the model cannot be served.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from stream_engine.model.hub.files import find_model
from stream_engine.model.render.rendering import load_builder

CELLS = 64
EMBEDDING = "embed_tokens.weight"


def main(model: str, device: str, adapter: str = "") -> None:
    files = find_model(model, adapter)
    folder = files.directory
    builder = load_builder(files)
    rows = embedding_rows(folder)
    highest = builder.vocab_size - 1
    if highest >= rows:
        raise ValueError(f"the tokenizer's id {highest} is outside the weights' vocabulary of {rows}")
    classes = ", ".join(answer_class.name for answer_class in builder.profile.classes)
    tell("ok", "model", f"{folder}: profile {builder.profile.name!r} ({classes}), tokenizer and weights fit")

    import torch

    cuda = f"CUDA with {torch.cuda.device_count()} devices" if torch.cuda.is_available() else "no CUDA"
    found = f"{torch.__version__}, {torch.get_num_threads()} threads, {cuda}"
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        remedy = "install the driver and a CUDA build of torch, or set engine.device = cpu"
        tell("problem", "torch", f"{found}, and engine.device = {device!r}", remedy)
        device = "cpu"
    else:
        tell("ok", "torch", found)

    from stream_engine.model.backbones.loader import load_backbone

    load_backbone(folder, total_cells=CELLS, device=device, adapter=files.adapter)
    tell("ok", "load", f"the weights load on {device}")


def embedding_rows(folder: Path) -> int:
    """Entries of the weights' vocabulary, from the files' headers. Raises FileNotFoundError where none has it."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "numpy") as weights:
            for name in weights.keys():  # noqa: SIM118 - no mapping, it has only this
                if name.endswith(EMBEDDING):
                    return int(weights.get_slice(name).get_shape()[0])
    raise FileNotFoundError(f"no weights (*.safetensors with {EMBEDDING}) in {folder}")


def tell(level: str, subject: str, message: str, remedy: str = "") -> None:
    line = {"level": level, "subject": subject, "message": message, "remedy": remedy}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
