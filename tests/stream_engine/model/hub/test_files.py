"""How a model may be named, and what each wrong name is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.model.hub import files, gguf
from stream_engine.model.hub.files import ADAPTER_FILE, GENERAL, ModelNotFound, find_model
from stream_engine.model.profile import EMBEDDED
from stream_engine.process.configured_model import model_builder, model_files


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAM_ENGINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def test_the_embedded_model_has_all_in_its_folder() -> None:
    found = find_model("embedded")
    assert (found.directory, found.home, found.weights) == (EMBEDDED, EMBEDDED, (EMBEDDED,))
    assert found.read_profile().name == "embedded"


def test_a_folder_without_a_profile_is_spoken_to_as_any_model(tiny_chat: Path) -> None:
    found = find_model(str(tiny_chat))
    assert found.profile == GENERAL
    profile = found.read_profile()
    assert (profile.name, profile.answers_anything) == (tiny_chat.name, True)
    assert profile.class_of_question("What is the trend?") == profile.generic_class
    assert profile.tokenizer_digest


def test_an_adapter_brings_its_own_profile(tiny_chat: Path, tmp_path: Path) -> None:
    (tmp_path / ADAPTER_FILE).write_text("{}")
    assert find_model(str(tiny_chat), str(tmp_path)).profile == GENERAL
    text = GENERAL.read_text().replace('"name": ""', '"name": "tuned"')
    (tmp_path / "profile.json").write_text(text.replace("../embedded/questions.txt", "q.txt"))
    (tmp_path / "q.txt").write_text("[trend]\nTrend?\n")
    found = find_model(str(tiny_chat), str(tmp_path))
    assert (found.home, found.weights) == (tmp_path, (tiny_chat, tmp_path))
    assert found.read_profile().name == "tuned"
    assert found.read_profile().questions == {"trend": ("Trend?",)}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere", "neither a name ('embedded', 'smollm2-135m'), nor a model directory, a .gguf file or a hub"),
        ("smollm2-135m", "stream-engine models get smollm2-135m"),
        ("/no/such/file.gguf", "no such file: /no/such/file.gguf"),
        ("./a/b", "neither a name"),
    ],
)
def test_what_cannot_be_had_is_told_with_the_setting(model: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        model_files(EngineSettings(model=model))
    assert str(error.value).startswith(f"engine.model = {model!r}: ")
    assert message in str(error.value)


def test_a_wrong_adapter_is_told_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine\.adapter = 'absent': no adapter: neither a name .* nor"):
        model_files(EngineSettings(adapter="absent"))


def test_a_tokenizer_that_does_not_fit_is_told_with_the_setting(tiny_chat: Path, tmp_path: Path) -> None:
    for path in tiny_chat.iterdir():
        if path.name != "chat_template.jinja":
            os.link(path, tmp_path / path.name)
    settings = EngineSettings(model=str(tmp_path))
    with pytest.raises(ConfigError, match=r"engine\.model = .*no chat template"):
        model_builder(settings, model_files(settings))


def test_a_hub_that_cannot_be_reached_says_how_to_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    tried: list[bool] = []

    def refuse(model: str, *, local_files_only: bool, **_: object) -> str:
        tried.append(local_files_only)
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelNotFound, match=r"\(no route to host\)\. Download it where .* in engine\.model"):
        find_model("owner/name")
    assert tried == [True, False], "what is in the cache needs no hub"
    with pytest.raises(ModelNotFound):
        find_model("owner/name", fetch=False)
    assert tried[2:] == [True], "and a process that only looks never goes there"


def test_a_hub_id_in_the_cache_is_its_folder(tiny_chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda model, **_: str(tiny_chat))
    found = find_model("owner/name-7B.Instruct")
    assert (found.directory, found.read_profile().name) == (tiny_chat, "owner/name-7B.Instruct")


def test_a_gguf_file_is_unpacked_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[Path] = []

    def unpack(file: Path, folder: Path) -> None:
        unpacked.append(file)
        folder.mkdir(parents=True)
        (folder / files.CONFIG_FILE).write_text("{}")

    monkeypatch.setattr(gguf, "unpack", unpack)
    file = tmp_path / "tiny.Q8_0.gguf"
    file.write_bytes(b"first")
    with pytest.raises(ModelNotFound, match="was not unpacked yet"):
        find_model(str(file), fetch=False)
    found = find_model(str(file))
    assert found.name == "tiny.Q8_0"
    assert found.directory.parent == cache
    assert find_model(str(file), fetch=False) == find_model(str(file)) == found
    assert unpacked == [file]
    file.write_bytes(b"another")
    assert find_model(str(file)).directory != found.directory, "another file under the same name"


def test_a_file_that_is_no_gguf_is_told_so(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "odd.gguf"
    file.write_bytes(b"not a model at all")
    with pytest.raises(ModelNotFound, match="cannot be read as GGUF"):
        find_model(str(file))
    assert not any(cache.iterdir()), "no half of it is left"
    with pytest.raises(ConfigError, match=r"engine\.model = .*odd\.gguf.*cannot be read as GGUF"):
        model_files(EngineSettings(model=str(file)))
