"""Several API processes behind one address: what dies or hangs is replaced."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence

import uvicorn
from uvicorn.supervisors import Multiprocess

from stream_engine.util.pulse import Awake, PulseWatch

log = logging.getLogger(__name__)

ASLEEP_S = 5.0


class Workers(Multiprocess):
    """Uvicorn's own check asks a thread of the worker, which answers as well where the event loop is stuck; the
    sign of life comes from the loop. ``beat`` is told of each look."""

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: Sequence[socket.socket],
        watch: PulseWatch,
        beat: Callable[[], None],
    ) -> None:
        super().__init__(config, sockets=list(sockets))
        self._watch = watch
        self._beat = beat
        self._awake = Awake(ASLEEP_S + config.timeout_worker_healthcheck)
        self._started: dict[int, float] = {}

    def keep_subprocess_alive(self) -> None:
        self._beat()
        now = time.monotonic()
        self._started = {
            process.pid: self._started.get(process.pid, now)
            for process in self.processes
            if process.pid is not None
        }
        awake_since = self._awake.look()
        for process in self.processes:
            if process.pid is None or not process.process.is_alive():
                continue
            why = self._watch.silence(process.pid, self._started[process.pid], awake_since)
            if why is not None:
                log.warning("worker %d hung, %s: killing it", process.pid, why)
                process.process.kill()
        super().keep_subprocess_alive()
