"""``stream-engine serve``: the service, all in one or one process of it in the foreground."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_engine.cli.configured_model import configured_model
from stream_engine.cli.supervisor import ChildSpec, Supervisor, until_parent_ends
from stream_engine.client.address import answers_ready, api_url
from stream_engine.client.failure import SETTINGS_WRONG, Failure, wrong_setting
from stream_engine.client.options import Options
from stream_engine.client.signals import exit_on_terminate, stop_signals
from stream_engine.config.api import ApiSettings
from stream_engine.config.config import Config
from stream_engine.config.life import LifeSettings
from stream_engine.config.rules import ConfigError
from stream_engine.util.lockfile import Held, held
from stream_engine.util.ownership import NotOurs
from stream_engine.util.pulse import Pulse, PulseWatch

if TYPE_CHECKING:
    from stream_engine.process.service import EngineService

log = logging.getLogger(__name__)

BROKER_WAIT_S = 10.0
PARTS = ("engine", "consumer", "api")
"""In the order of their start; they stop in the reverse one."""

until_stdin_closes = click.option(
    "--until-stdin-closes",
    is_flag=True,
    hidden=True,
    help="Stop when standard input closes: a process that started this one lives no more.",
)


@click.group(invoke_without_command=True)
@click.option(
    "--only",
    type=click.Choice(PARTS),
    multiple=True,
    help="Supervise this part alone, in a container of its own; may be given again.",
)
@until_stdin_closes
@click.pass_context
def serve(context: click.Context, only: tuple[str, ...], until_stdin_closes: bool) -> None:
    """Run the service: engine, consumer and HTTP API.

    Alone, `serve` runs all three, starts again what dies or hangs, and stops them in order: for a laptop and for
    one node. `serve --only engine` does so for one of them: for containers where nothing else replaces what hangs.
    `serve engine`, `serve consumer` and `serve api` each run one in the foreground: for Kubernetes, whose liveness
    probes (`stream-engine health live`) see what hangs.

    \b
    Examples:
      stream-engine serve
      KAFKA_BOOTSTRAP_SERVERS=broker:9092 stream-engine serve
      STREAM_ENGINE_API_PORT=9000 stream-engine --config desk.toml serve
      stream-engine serve engine
      stream-engine serve --only engine

    SIGINT and SIGTERM stop it cleanly, with status 0.
    """
    if context.invoked_subcommand is not None:
        if only:
            raise click.UsageError(
                f"--only and `serve {context.invoked_subcommand}` are two ways to choose: take one"
            )
        return
    parts = [part for part in PARTS if part in only] or list(PARTS)
    options: Options = context.obj
    config = options.load()
    if until_stdin_closes:
        until_parent_ends()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    exit_on_terminate()
    if "engine" in parts:
        configured_model(config.engine)
    if "api" in parts:
        _check_port(config.api)
    if "consumer" in parts:
        _check_broker(config)
    url = api_url(config.api)
    supervisor = Supervisor(
        [_child(options, name, config.life) for name in parts],
        say=click.echo,
        is_ready=(lambda: answers_ready(url)) if "api" in parts else None,
        ready_line=f"ready: {url} (documentation: {url}/docs)",
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: supervisor.stop())
    context.exit(supervisor.run())


@serve.command(short_help="Sessions, model, ready board.")
@until_stdin_closes
@click.pass_obj
def engine(options: Options, until_stdin_closes: bool) -> None:
    """The process that runs the model: sessions, steps, the ready board."""

    def run(config: Config, stop: threading.Event, beat: Callable[[], None]) -> None:
        from stream_engine.messages.transport import require_our_sockets

        require_our_sockets(config.transport.engine, config.transport.events)  # before minutes of loading a model
        with _only_engine_of(config.board.path):
            _engine(config).run(stop, beat)

    _foreground(options, "engine", until_stdin_closes, run)


@serve.command(short_help="Kafka to the engine.")
@until_stdin_closes
@click.pass_obj
def consumer(options: Options, until_stdin_closes: bool) -> None:
    """The process that reads Kafka: validates records, hands them to the engine, commits offsets."""

    def run(config: Config, stop: threading.Event, beat: Callable[[], None]) -> None:
        from consumers.kafka.client import BrokerUnreachable
        from consumers.kafka.offsets import OffsetResetRequired
        from consumers.kafka.producer import WriteRefused
        from consumers.process import run_consumer

        try:
            run_consumer(config, stop, beat)
        except (BrokerUnreachable, WriteRefused) as error:
            raise Failure(str(error)) from error
        except OffsetResetRequired as error:
            raise Failure(str(error), SETTINGS_WRONG) from error

    _foreground(options, "consumer", until_stdin_closes, run)


@serve.command(short_help="HTTP: answers, events, metrics.")
@until_stdin_closes
@click.pass_obj
def api(options: Options, until_stdin_closes: bool) -> None:
    """The process that answers over HTTP: the fast path from the ready board, the rest from the engine."""
    config = options.load()
    options.log_as("api")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))  # until the server has its own handlers
    if until_stdin_closes:
        until_parent_ends()
    from query_api import server
    from stream_engine.messages.transport import require_our_sockets

    try:
        require_our_sockets(config.transport.engine, config.transport.events)
        with _pulse(config, "api") as pulse:
            server.run(config, pulse.beat)
    except NotOurs as error:
        raise _not_ours(error) from error


Run = Callable[[Config, threading.Event, Callable[[], None]], None]
"""Works until the event is set; calls the third with each turn of its loop."""


def _foreground(options: Options, name: str, until_stdin_closes: bool, run: Run) -> None:
    config = options.load()
    options.log_as(name)
    stop = threading.Event()
    with stop_signals(stop):
        if until_stdin_closes:
            until_parent_ends()
        try:
            with _pulse(config, name) as pulse:
                run(config, stop, pulse.beat)
        except ConfigError as error:
            raise wrong_setting(error) from error
        except NotOurs as error:
            raise _not_ours(error) from error


@contextmanager
def _pulse(config: Config, name: str) -> Iterator[Pulse]:
    folder = config.life.folder
    try:
        pulse = Pulse(folder, name)
    except NotOurs:
        raise
    except OSError as error:
        raise Failure(f"life.folder = {str(folder)!r}: {error.strerror}", SETTINGS_WRONG) from error
    with closing(pulse):
        yield pulse


def _not_ours(error: NotOurs) -> Failure:
    return Failure(f"{error.filename}: {error.strerror}", SETTINGS_WRONG)


def _engine(config: Config) -> EngineService:
    """The engine with its model loaded. Raises a Failure that names the setting at fault."""
    import zmq

    from stream_engine.process.service import EngineService

    try:
        return EngineService(config)
    except (ConfigError, NotOurs):
        raise
    except ImportError as error:
        raise Failure(f"{error.name} is missing: pip install 'stream-engine[engine]'", SETTINGS_WRONG) from error
    except zmq.ZMQError as error:
        where = f"transport.engine, transport.events = {config.transport.engine}, {config.transport.events}"
        raise Failure(f"{where}: {error}", SETTINGS_WRONG) from error
    except (OSError, ValueError, RuntimeError) as error:
        log.debug("the engine cannot start", exc_info=True)
        reason = str(error).partition("\n")[0]
        raise Failure(f"engine.model = {config.engine.model!r}: {reason}", SETTINGS_WRONG) from error


def _child(options: Options, name: str, life: LifeSettings) -> ChildSpec:
    program = (sys.executable, "-m", "stream_engine.cli", *options.arguments())
    return ChildSpec(
        name,
        (*program, "serve", name, "--until-stdin-closes"),
        frozenset({SETTINGS_WRONG}),
        PulseWatch(life.folder, name, life.hung_after_s, life.start_s),
    )


@contextmanager
def _only_engine_of(board: Path) -> Iterator[None]:
    """Two engines on one board and one socket would take each other's messages: the second refuses."""
    board.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(board.with_name(f"{board.name}.engine")))
        except Held:
            raise Failure(
                f"board.path = {str(board)!r}: another engine runs on it; stop that one, or give this one another "
                "board.path, transport.engine and transport.events",
                SETTINGS_WRONG,
            ) from None
        yield


# --- checks before anything starts, so that the reason is the first line one reads ----------------------


def _check_port(settings: ApiSettings) -> None:
    if settings.port == 0:
        raise Failure("api.port = 0: name the port, so that it can be told", SETTINGS_WRONG)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            choose = "; choose another with STREAM_ENGINE_API_PORT" if error.errno == errno.EADDRINUSE else ""
            raise Failure(
                f"api.host, api.port = {settings.host}:{settings.port}: {error.strerror}{choose}", SETTINGS_WRONG
            ) from error


def _check_broker(config: Config) -> None:
    from consumers.kafka.topics import ensure_topics

    try:
        ensure_topics(config.kafka, BROKER_WAIT_S)
    except ConfigError as error:
        raise wrong_setting(error) from error
    except RuntimeError as error:
        raise Failure(str(error)) from error


# --- where it listens, and whether it is ready ----------------------------------------------------------
