"""Each way to name a model, through every command that starts with one: `serve`, the engine, the demo."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_engine.cli.configured_model import configured_model
from stream_engine.client.failure import Failure
from stream_engine.config.engine import EngineSettings
from stream_engine.model.hub.files import ADAPTER_FILE, find_model
from tests.support.gguf_file import write

PATIENCE_S = 300.0
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine whose caches are empty and which no hub can be reached from."""
    settings = {
        "STREAM_ENGINE_CACHE": str(tmp_path / "cache"),
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_CACHE": str(tmp_path / "hub" / "hub"),
        "HF_HUB_OFFLINE": "1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", settings["HF_HUB_CACHE"])
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return settings


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / ADAPTER_FILE).write_text("{}")
    return folder


def by_name(tiny_chat: Path, machine: dict[str, str], folder: Path) -> str:
    shutil.copytree(tiny_chat, Path(machine["STREAM_ENGINE_CACHE"]) / "models" / "smollm2-135m")
    return "smollm2-135m"


def by_directory(tiny_chat: Path, machine: dict[str, str], folder: Path) -> str:
    return str(tiny_chat)


def by_hub_id(tiny_chat: Path, machine: dict[str, str], folder: Path) -> str:
    repository = Path(machine["HF_HUB_CACHE"]) / "models--owner--tiny-chat"
    shutil.copytree(tiny_chat, repository / "snapshots" / REVISION)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    return "owner/tiny-chat"


def by_gguf_file(tiny_chat: Path, machine: dict[str, str], folder: Path) -> str:
    write(tiny_chat, folder / "tiny.gguf")
    return str(folder / "tiny.gguf")


WAYS = [by_name, by_directory, by_hub_id, by_gguf_file]
Way = Callable[[Path, dict[str, str], Path], str]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stream_engine.cli", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("way", WAYS)
def test_serve_takes_what_the_engine_takes(
    way: Way, tiny_chat: Path, machine: dict[str, str], adapter: Path, tmp_path: Path
) -> None:
    model = way(tiny_chat, machine, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that `serve` ends at the check behind the model's
        ended = command(
            "serve",
            STREAM_ENGINE_ENGINE_MODEL=model,
            STREAM_ENGINE_ENGINE_ADAPTER=str(adapter),
            STREAM_ENGINE_API_PORT=str(taken.getsockname()[1]),
        )
    assert "engine.model" not in ended.stderr
    assert (ended.returncode, "api.port" in ended.stderr) == (2, True), ended.stderr
    files = find_model(model, str(adapter), fetch=False)
    assert files.adapter == adapter
    assert files == configured_model(EngineSettings(model=model, adapter=str(adapter)))


@pytest.mark.parametrize(
    ("settings", "named", "advice"),
    [
        ({"model": "smollm2-135m"}, "engine.model", "stream-engine models get smollm2-135m"),
        ({"model": "nowhere"}, "engine.model", "a hub id"),
        ({"model": "owner/name"}, "engine.model", "name its directory in engine.model"),
        ({"model": "gone.gguf"}, "engine.model", "no such file"),
        ({"adapter": "gone"}, "engine.adapter", "'smollm2-135m-trend'"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_starts(
    machine: dict[str, str], settings: dict[str, str], named: str, advice: str
) -> None:
    with pytest.raises(Failure) as error:
        configured_model(dataclasses.replace(EngineSettings(), **settings))  # type: ignore[arg-type]
    assert error.value.exit_code == 2
    assert error.value.message.startswith(f"{named} = ")
    assert advice in error.value.message


def test_a_broken_gguf_file_is_refused_in_one_line(machine: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "odd.gguf"
    file.write_bytes(b"not a model at all")
    ended = command("serve", STREAM_ENGINE_ENGINE_MODEL=str(file))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"Error: engine.model = {str(file)!r}: ")
    assert ended.stderr.count("\n") == 1


def test_the_demo_runs_on_a_gguf_file_with_an_adapter(
    kafka: Any, tiny_chat: Path, machine: dict[str, str], tmp_path: Path
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from stream_engine.model.backbones.loader import quiet_libraries

    base = AutoModelForCausalLM.from_pretrained(str(tiny_chat), dtype=torch.float32)
    adapter = tmp_path / "lora"
    with quiet_libraries():
        get_peft_model(base, LoraConfig(r=2, target_modules="all-linear")).save_pretrained(str(adapter))
    done = command(
        "demo", "--bars", "64", "--speed", "100",
        KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap,
        STREAM_ENGINE_ENGINE_MODEL=by_gguf_file(tiny_chat, machine, tmp_path),
        STREAM_ENGINE_ENGINE_ADAPTER=str(adapter),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    unpacked = list((Path(machine["STREAM_ENGINE_CACHE"]) / "models").iterdir())
    assert [json.loads((path / "config.json").read_text())["model_type"] for path in unpacked] == ["llama"]
    assert "questions asked with path auto" in done.stdout
