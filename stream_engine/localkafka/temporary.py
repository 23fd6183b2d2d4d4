"""A broker for tests: a free port, a folder of its own, and nothing left behind whatever happens."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from stream_engine.util.ports import free_port

from . import properties, server
from .errors import PortInUseError

_PORT_ATTEMPTS = 3


class TemporaryKafka:
    """A context manager around a broker that lives as long as the block.

    A watchdog process ends the broker and removes its folder, also when this process is killed.
    """

    def __init__(self, *secure: properties.SecureListener) -> None:
        self._secure = secure
        self.data_dir = Path(tempfile.mkdtemp(prefix="stream-engine-kafka-"))
        self.port = 0
        self._watchdog = subprocess.Popen(
            [sys.executable, "-m", "stream_engine.localkafka.watchdog", str(self.data_dir)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C in the terminal is not for it
        )

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients; the same after `kill9` and `restart`."""
        return f"{properties.HOST}:{self.port}"

    def kill9(self) -> None:
        """Ends the broker as a crash does."""
        server.kill9(self.data_dir)

    def stop(self) -> None:
        """Ends the broker cleanly; its data stays until the block ends."""
        server.stop(self.data_dir)

    def restart(self) -> None:
        """Starts the broker again on the same data and port."""
        server.start(self.data_dir, self.port, secure=self._secure)

    def __enter__(self) -> TemporaryKafka:
        try:
            self._start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean_up()

    def _start(self) -> None:
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self.port = free_port()
            try:
                server.start(self.data_dir, self.port, secure=self._secure)
                return
            except PortInUseError:
                # Taken between the look and the broker's start.
                if attempt == _PORT_ATTEMPTS:
                    raise

    def _clean_up(self) -> None:
        self._watchdog.communicate()  # closes its stdin, the sign to clean up, and waits for it
        shutil.rmtree(self.data_dir, ignore_errors=True)
