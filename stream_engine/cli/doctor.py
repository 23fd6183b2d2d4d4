"""Whether this machine can run the service: each finding with its remedy. Kafka is inspected elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import Requirement

from stream_engine.board.layout import BoardError
from stream_engine.board.reader import BoardReader
from stream_engine.config.board import BoardSettings
from stream_engine.config.engine import EngineSettings
from stream_engine.config.rules import ConfigError
from stream_engine.config.transport import TransportSettings
from stream_engine.util.findings import Finding, Level, ok, problem, warning
from stream_engine.util.memory import machine_memory, readable

DISTRIBUTION = "stream-engine"
ENGINE_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux."""
CONNECT_TIMEOUT_S = 1.0


def check_python() -> Iterator[Finding]:
    """The interpreter, and whether what the package requires is installed in the versions that it requires."""
    yield ok("python", f"{sys.version.split()[0]} at {sys.executable}")
    wrong = []
    required = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    needed = [
        requirement
        for requirement in required
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    for requirement in needed:
        version = _installed(requirement.name)
        if version is None:
            wrong.append(f"{requirement.name} is missing")
        elif version not in requirement.specifier:
            wrong.append(f"{requirement.name} {version} is not {requirement.specifier}")
    if wrong:
        yield problem("packages", "; ".join(wrong), f"pip install --upgrade {DISTRIBUTION}")
    else:
        yield ok(
            "packages", f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}, {len(needed)} dependencies as required"
        )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


class ModelCheck:
    """Looks at the model and loads it in a process of its own, while other checks run: that takes seconds, and may
    die."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._started = time.monotonic()
        self._missing = [name for name in ENGINE_PACKAGES if _installed(name) is None]
        self._process: subprocess.Popen[str] | None = None
        if not self._missing:
            command = [sys.executable, "-m", "stream_engine.model.selfcheck", settings.model, settings.device]
            command += [settings.adapter] if settings.adapter else []
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
            )

    def findings(self, timeout_s: float) -> Iterator[Finding]:
        """What it found. It may take ``timeout_s`` seconds since its start."""
        if self._process is None:
            where = "this machine serves the API and the consumer only"
            remedy = f"where the engine is to run: pip install '{DISTRIBUTION}[engine]'"
            yield warning("torch", f"{', '.join(self._missing)} not installed: {where}", remedy)
            return
        late = False
        try:
            left_s = max(0.0, self._started + timeout_s - time.monotonic())
            output, errors = self._process.communicate(timeout=left_s)
        except subprocess.TimeoutExpired:
            late = True
            self._process.kill()
            output, errors = self._process.communicate()
        for line in output.splitlines():
            found = json.loads(line)
            yield Finding(Level(found.pop("level")), **found)
        if late:
            remedy = "the machine is busy, or the model large: look again later"
            yield warning("load", f"the model is not loaded within {timeout_s:g} s", remedy)
        elif self._process.returncode != 0:
            reason = (errors.strip().splitlines() or [f"status {self._process.returncode}"])[-1]
            message = f"engine.model = {self._settings.model!r}: {reason}"
            yield problem("model", message, "name a model that fits: stream-engine models --help")


def check_calibration(settings: EngineSettings) -> Iterator[Finding]:
    """The gate's calibration, of a model that is fit to be served: absent, this model's, or another one's."""
    from stream_engine.process.configured_gate import load_calibration
    from stream_engine.process.configured_model import model_builder, model_files

    try:
        calibration = load_calibration(settings, model_builder(settings, model_files(settings)))
    except ConfigError as error:
        yield problem("calibration", str(error), "stream-engine calibrate SOURCE --out FOLDER --install")
        return
    if calibration is None:
        yield ok("calibration", "none: tau is the profile's, and answers have no confidence")
        return
    taus = ", ".join(f"{name} {entry.tau:g}" for name, entry in calibration.classes.items())
    yield ok("calibration", f"of {calibration.created}, for a budget of {calibration.r_max:g}: tau {taus}")


def check_memory(settings: EngineSettings) -> Iterator[Finding]:
    """How many symbols have room in the sessions' memory, of a model that is fit to be served."""
    from stream_engine.process.configured_budget import budget_shape
    from stream_engine.process.configured_model import model_builder, model_files

    try:
        shape = budget_shape(settings, model_builder(settings, model_files(settings)))
    except ConfigError as error:
        yield problem("memory", str(error), "name more in engine.kv_memory, such as 4GiB or 25%")
        return
    size, room = shape.cells * shape.cell_bytes, f"{shape.sessions} symbols have room"
    found = f"engine.kv_memory = {settings.kv_memory}: {room} in {readable(size)}, {shape.cells} cells"
    there = machine_memory()
    if settings.device == "cpu" and size > there:
        yield warning("memory", f"{found}; there are {readable(there)}", "name less in engine.kv_memory")
    else:
        yield ok("memory", found)


def check_board(settings: BoardSettings) -> Iterator[Finding]:
    """The ready board: absent, written by a living engine, or left by a dead one."""
    path, setting = settings.path, f"board.path = {str(settings.path)!r}"
    folder = next(parent for parent in path.parents if parent.exists())
    if not os.access(folder, os.W_OK):
        yield problem(
            "board", f"{setting}: {folder} is not writable", "name another place in STREAM_ENGINE_BOARD_PATH"
        )
        return
    if not path.exists():
        free = shutil.disk_usage(folder).free / 2**20
        yield ok("board", f"none yet at {path} ({free:.0f} MiB free): no engine runs on it")
        return
    try:
        alive = BoardReader.open(path, 0).alive()
    except (BoardError, OSError) as error:
        yield problem(
            "board", f"{setting}: {error}", "see whose file it is; a running engine replaces an old board"
        )
        return
    size = f"{path.stat().st_size / 2**20:.1f} MiB"
    if alive:
        yield ok("board", f"{path}, {size}: an engine writes it")
    else:
        remedy = "start the engine (stream-engine serve); readers refuse this board until it is replaced"
        yield warning("board", f"{path}, {size}: no engine's heartbeat within {settings.lease_s:g} s", remedy)


def check_transport(settings: TransportSettings) -> Iterator[Finding]:
    """Whether each endpoint is free for an engine, or one listens there."""
    for name in ("engine", "events"):
        endpoint = getattr(settings, name)
        subject, setting = f"transport.{name}", f"transport.{name} = {endpoint}"
        if endpoint.startswith("ipc://"):
            yield _check_ipc(subject, setting, Path(endpoint.removeprefix("ipc://")))
        else:
            address = urlsplit(endpoint)
            host = {"0.0.0.0": "127.0.0.1", "*": "127.0.0.1"}.get(address.hostname or "", address.hostname)  # noqa: S104
            state = "something listens there" if _listens(socket.AF_INET, (host, address.port)) else "free"
            yield ok(subject, f"{endpoint}: {state}")


def _check_ipc(subject: str, setting: str, path: Path) -> Finding:
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        return problem(subject, f"{setting}: longer than {SOCKET_PATH_BYTES} bytes", "name a shorter path")
    folder = next((parent for parent in path.parents if parent.exists()), Path("/"))
    if not os.access(folder, os.W_OK):
        return problem(subject, f"{setting}: {folder} is not writable", "name a folder of this user")
    return ok(subject, f"{path}: {'an engine listens' if _listens(socket.AF_UNIX, str(path)) else 'free'}")


def _listens(family: socket.AddressFamily, address: Any) -> bool:
    with socket.socket(family) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


def check_api(url: str) -> Iterator[Finding]:
    """Whether the API's port is free, ours and ready, or somebody else's."""
    address = urlsplit(url)
    family = socket.AF_INET6 if ":" in (address.hostname or "") else socket.AF_INET
    if not _listens(family, (address.hostname, address.port)):
        yield ok("api", f"{url}: free, no API runs")
        return
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health/ready", timeout=CONNECT_TIMEOUT_S):
            yield ok("api", f"{url}: ready")
    except urllib.error.HTTPError as error:
        if error.code == 503:
            yield warning("api", f"{url}: runs, and is not ready", f"its reasons: curl {url}/health/ready")
        else:
            yield _other_program(url)
        error.close()
    except TimeoutError:  # our own, too, on a machine that has much else to do
        message = f"{url}: what listens there does not answer within {CONNECT_TIMEOUT_S:.0f} s"
        yield problem("api", message, "if it is the service, look at its load; else set STREAM_ENGINE_API_PORT")
    except (OSError, ValueError):
        yield _other_program(url)


def _other_program(url: str) -> Finding:
    return problem("api", f"{url}: another program holds this port", "choose one in STREAM_ENGINE_API_PORT")
