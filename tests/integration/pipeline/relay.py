"""A relay of Unix sockets that a test can make deaf, and cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


class Relay:
    """Passes on what comes to ``path``, in both directions; what the engine says is lost while ``deaf``."""

    def __init__(self, path: Path, engine: Path) -> None:
        self.deaf = False
        self._engine = engine
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._run(self._accept)

    def _run(self, body: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=body, args=arguments, name="relay")
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self._engine))
            self._pairs.append((near, far))
            self._run(self._pass_on, near, far, False)
            self._run(self._pass_on, far, near, True)

    def _pass_on(self, source: socket.socket, target: socket.socket, of_engine: bool) -> None:
        with contextlib.suppress(OSError):  # cut
            while data := source.recv(65_536):
                if not (of_engine and self.deaf):
                    target.sendall(data)
        for end in (source, target):
            _shut(end)

    def cut(self) -> None:
        """End every connection; new ones are passed on in full."""
        pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            _shut(end)
        self.deaf = False
        for end in (end for pair in pairs for end in pair):
            end.close()

    def close(self) -> None:
        _shut(self._listener)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be shut already
        end.shutdown(socket.SHUT_RDWR)
