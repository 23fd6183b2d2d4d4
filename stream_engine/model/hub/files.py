"""Where a configured model's files lie: the embedded one, a folder, a GGUF file, a hub id, or a fetched name."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from stream_engine.model.profile import EMBEDDED, PROFILE_FILE, TOKENIZER_FILE, Profile

PROFILES = Path(__file__).parents[1] / "profiles"
GENERAL = PROFILES / "general.json"
"""How a model is spoken to that has no profile of its own."""

ADAPTERS = Path(__file__).parents[1] / "adapters"
"""Folders of the LoRA adapters that come with the package; a folder's name is the adapter's."""

GGUF = ".gguf"
CONFIG_FILE = "config.json"
ADAPTER_FILE = "adapter_config.json"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")


class ModelNotFound(ValueError):
    """A model, or an `adapter`, cannot be had as it was named; the message says why, and what to do."""

    def __init__(self, message: str, adapter: bool = False) -> None:
        super().__init__(message)
        self.adapter = adapter


class ModelNotHere(ModelNotFound):
    """A model that `find_model` was not to fetch or unpack: with `fetch` it may be had."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Parts of one model on this machine: the folder of weights and tokenizer, the profile, the adapter's folder.

    `name` is what the model is called where its profile does not say.
    """

    name: str
    directory: Path
    profile: Path
    adapter: Path | None = None

    @property
    def home(self) -> Path:
        """Where what was made for the model as it is served belongs, its calibration first of all."""
        return self.adapter or self.directory

    @property
    def weights(self) -> tuple[Path, ...]:
        """Folders with weights."""
        return (self.directory,) if self.adapter is None else (self.directory, self.adapter)

    def read_profile(self) -> Profile:
        """Raises FileNotFoundError or ValueError as `Profile.load`."""
        return Profile.read(self.profile, self.directory / TOKENIZER_FILE, self.name)


def find_model(model: str, adapter: str = "", *, fetch: bool = True) -> ModelFiles:
    """The files of a model as `engine.model` and `engine.adapter` name it.

    With `fetch` a hub id that is not in the hub's cache is downloaded, and a GGUF file that was not unpacked
    before is unpacked; without, neither happens, and ModelNotHere says so. Raises ModelNotFound.
    """
    lora = _adapter_folder(adapter) if adapter else None
    name, directory = _model_folder(model, fetch)
    for place in (lora, directory):
        if place is not None and (place / PROFILE_FILE).is_file():
            return ModelFiles(name, directory, place / PROFILE_FILE, lora)
    if not (directory / CONFIG_FILE).is_file():
        raise ModelNotFound(f"{directory} holds no model: it has no {CONFIG_FILE}")
    return ModelFiles(name, directory, GENERAL, lora)


def cache_dir() -> Path:
    """Where fetched models are kept: `models` in $STREAM_ENGINE_CACHE, else in the XDG cache folder."""
    if chosen := os.environ.get("STREAM_ENGINE_CACHE"):
        return Path(chosen).expanduser() / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stream-engine" / "models"


def _model_folder(model: str, fetch: bool) -> tuple[str, Path]:
    from stream_engine.model.hub.catalogue import CATALOGUE

    path = Path(model).expanduser()
    if model == "embedded":
        return model, EMBEDDED
    if model in CATALOGUE:
        folder = cache_dir() / model
        if not folder.is_dir():
            raise ModelNotFound(f"it is not on this machine yet; fetch it with: stream-engine models get {model}")
        return model, folder
    if path.is_dir():
        return path.name, path
    if path.suffix == GGUF:
        return path.stem, _unpacked(path, fetch)
    if HUB_ID.fullmatch(model):
        return model, _hub_folder(model, fetch)
    names = ", ".join(map(repr, ("embedded", *CATALOGUE)))
    raise ModelNotFound(f"neither a name ({names}), nor a model directory, a {GGUF} file or a hub id (owner/name)")


def _unpacked(path: Path, fetch: bool) -> Path:
    """The folder that a GGUF file was, or is, unpacked to: once, because unpacking takes longer than loading."""
    if not path.is_file():
        raise ModelNotFound(f"no such file: {path}")
    about = path.stat()
    mark = hashlib.sha256(f"{path.resolve()}:{about.st_size}:{about.st_mtime_ns}".encode()).hexdigest()[:12]
    folder = cache_dir() / f"{path.stem}-{mark}"
    if not folder.is_dir():
        if not fetch:
            raise ModelNotHere(f"{path} was not unpacked yet")
        from stream_engine.model.hub.gguf import UnpackError, unpack

        try:
            unpack(path, folder)
        except UnpackError as error:
            raise ModelNotFound(str(error)) from error
    return folder


def _hub_folder(model: str, fetch: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelNotFound(f"a hub id needs {error.name}: pip install 'stream-engine[engine]'") from error
    for local in (True, False) if fetch else (True,):
        try:
            return Path(snapshot_download(model, allow_patterns=list(_HUB_FILES), local_files_only=local))
        except (OSError, ValueError) as error:  # a ValueError for a name that no hub can have
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    kind = ModelNotFound if fetch else ModelNotHere
    raise kind(
        f"it cannot be fetched from the hub ({reason}). Download it where the hub can be reached, and name its "
        "directory in engine.model"
    )


def adapter_names() -> tuple[str, ...]:
    """Adapters that come with the package, in order of their names."""
    return tuple(sorted(file.parent.name for file in ADAPTERS.glob(f"*/{ADAPTER_FILE}")))


def adapted_model(adapter: str) -> str:
    """The model that an adapter of the package was made for, as `engine.model` names it."""
    about = json.loads((ADAPTERS / adapter / ADAPTER_FILE).read_text(encoding="utf-8"))
    return str(about["base_model_name_or_path"])


def _adapter_folder(adapter: str) -> Path:
    if adapter in adapter_names():
        return ADAPTERS / adapter
    path = Path(adapter).expanduser()
    if not (path / ADAPTER_FILE).is_file():
        names = ", ".join(map(repr, adapter_names()))
        raise ModelNotFound(f"no adapter: neither a name ({names}) nor a folder with {ADAPTER_FILE}", adapter=True)
    return path
