"""An API service of a test's own, with a board or without, and an engine that answers by script."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from query_api.app import create_app
from query_api.protocol import ConnectionLimits, Protocol
from query_api.server import listen
from stream_engine.config.api import ApiSettings
from stream_engine.config.board import BoardSettings
from stream_engine.config.config import Config
from stream_engine.config.engine import EngineSettings
from stream_engine.config.risk import RiskSettings
from stream_engine.config.transport import TransportSettings
from stream_engine.messages import (
    Query,
)
from tests.support.api_service import Board, ScriptedEngine, Service, answer


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for Unix sockets."""
    made = Path(tempfile.mkdtemp(prefix="qa-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def make_service(folder: Path) -> Iterator[Callable[..., Service]]:
    """Starts one service; ``board=False`` leaves the board out, other keywords are API settings. Only where
    ``check_share`` says so are answers picked for a check."""
    started: list[Callable[[], object]] = []

    def make(
        *,
        board: bool = True,
        lease_s: float = 3600.0,
        check_share: float = 0.0,
        model: str = "embedded",
        **api: Any,
    ) -> Service:
        config = Config(
            engine=EngineSettings(model=model),
            board=BoardSettings(path=folder / "board", lease_s=0.2),
            transport=TransportSettings(f"ipc://{folder}/engine", f"ipc://{folder}/events"),
            risk=RiskSettings(check_share=check_share),
            api=ApiSettings(**({"port": 0, "engine_timeout_s": 5.0} | api)),
        )
        engine = ScriptedEngine(config.transport)
        started.append(engine.close)
        kept = Board(config.board.path, lease_s) if board else None
        listener = listen("127.0.0.1", 0, config.api.send_timeout_s)
        app = create_app(config)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=partial(Protocol, limits=ConnectionLimits.of(config.api)),  # type: ignore[arg-type]
                ws="none",
                lifespan="on",
                log_level="warning",
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()

        def stop() -> None:
            app.state.api.events.end_streams()
            server.should_exit = True
            thread.join()

        started.append(stop)
        client = httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30)
        started.append(client.close)
        while not server.started:
            time.sleep(0.005)
        service = Service(config, client, engine, kept, app.state.api.events.end_streams)
        started.append(service.close_board)
        return service

    yield make
    for end in reversed(started):
        end()


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    return make_service()


@pytest.fixture
def engine_answers(service: Service) -> Service:
    """The default service, whose engine answers every query on the full path."""
    service.engine.on[Query] = lambda query: answer(session=query.session, question=query.question)
    return service
