"""Runs the API: uvicorn on uvloop and httptools, one process or several workers, until SIGINT or SIGTERM."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from query_api.app import create_app
from query_api.metrics import MULTIPROCESS_FOLDER
from query_api.protocol import ConnectionLimits, Protocol
from query_api.workers import Workers
from stream_engine.config.config import Config
from stream_engine.util.pulse import Pulse, PulseWatch, sweep

log = logging.getLogger(__name__)

GRACE_S = 10
"""How long open requests may take to end at a stop."""
BACKLOG = 2048
WORKER = "worker"
"""One of several API processes, by its sign of life."""


def run(config: Config, beat: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGINT or SIGTERM, then return. Called in the main thread of its process. ``beat`` is told that
    its loop turns.

    Raises SystemExit with a status other than 0 where the address is taken or a worker cannot start.
    """
    api, life = config.api, config.life
    noted: list[signal.Signals] = []
    settings = uvicorn.Config(
        partial(serving_app, config, noted, beat if api.workers == 1 else None),
        factory=True,
        workers=api.workers,
        loop="uvloop",
        http=partial(Protocol, limits=ConnectionLimits.of(api)),  # type: ignore[arg-type]  # any callable is taken
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        # While a worker's answer is awaited the parent gives no sign of life itself.
        timeout_worker_healthcheck=max(1, int(life.hung_after_s / 2)),
    )
    listener = listen(api.host, api.port, api.send_timeout_s)
    host, port = listener.getsockname()[:2]
    started = {"event": "api_listening", "host": host, "port": port, "workers": api.workers, "pid": os.getpid()}
    log.info(json.dumps(started))
    if api.workers == 1:
        with _stop_signals_noted(noted):
            uvicorn.Server(settings).run(sockets=[listener])
        return
    with _metrics_folder():
        watch = PulseWatch(life.folder, WORKER, life.hung_after_s, life.start_s)
        supervisor = Workers(settings, [listener], watch, beat)
        supervisor.run()
    sweep(life.folder, WORKER)
    # A worker that a signal stopped has a negative status; one that could not start, a positive one.
    if any((process.exitcode or 0) > 0 for process in supervisor.processes):
        raise SystemExit(1)


def listen(host: str, port: int, send_timeout_s: float) -> socket.socket:
    """The socket that all workers accept from; port 0 is any free one. A connection whose client leaves what it
    was sent unread for ``send_timeout_s`` is closed by the kernel. Raises SystemExit naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise SystemExit(f"cannot listen on {host}:{port}: {error.strerror}") from None
    # What it accepts inherits it. While there is little to send, the application cannot see that nobody reads.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(send_timeout_s * 1000))
    return listener


def serving_app(
    config: Config, noted: Sequence[signal.Signals] = (), beat: Callable[[], None] | None = None
) -> FastAPI:
    """The application as a server runs it, made in the process that serves, once the server has its handlers;
    ``noted`` are the signals that came before. ``beat`` is told that the event loop turns; without it the process
    is one of several workers, and has a sign of life of its own."""
    app = create_app(config, beat or Pulse(config.life.folder, WORKER).beat)
    for number in (signal.SIGINT, signal.SIGTERM):
        _end_streams_on(number, app)
    for number in noted:
        signal.raise_signal(number)
    return app


def _end_streams_on(number: signal.Signals, app: FastAPI) -> None:
    """End event streams when the server is told to stop: it waits for open responses, and they never end."""
    server_stops = signal.getsignal(number)

    def stop(signum: int, frame: FrameType | None) -> None:
        state = getattr(app.state, "api", None)
        if state is not None:
            state.events.end_streams()
        if callable(server_stops):
            server_stops(signum, frame)

    signal.signal(number, stop)


@contextmanager
def _stop_signals_noted(noted: list[signal.Signals]) -> Iterator[None]:
    """Signals that come before the server has its handlers are kept for it; the one that it raises once more when
    it is done has no further effect: a stop is a clean return. Nothing is raised: an exception out of a handler
    may be swallowed, wherever the main thread happens to be."""

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(signal.Signals(number))

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _metrics_folder() -> Iterator[None]:
    """A folder in which the workers' metrics are summed, for this run only: left-overs would be counted again.
    It has to be in a worker's environment before the metrics library is imported there; workers are spawned."""
    folder = tempfile.mkdtemp(prefix="stream-engine-metrics-")
    os.environ[MULTIPROCESS_FOLDER] = folder
    try:
        yield
    finally:
        del os.environ[MULTIPROCESS_FOLDER]
        shutil.rmtree(folder, ignore_errors=True)
