"""The FastAPI application of one API process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from query_api.access.browsers import BrowserRules
from query_api.edge import Edge
from query_api.errors import install_error_handlers
from query_api.events import EventHub
from query_api.fast_path import FastPath
from query_api.metrics import ApiMetrics
from query_api.protocol import COUNT_REFUSED
from query_api.questions import QuestionRouter
from query_api.resources import Resources
from query_api.routes import calibration, documents, events, health, query, sessions, standing_queries
from query_api.schemas import components
from query_api.state import ApiState
from query_api.worker import claim_worker
from stream_engine.config.api import ApiSettings
from stream_engine.config.config import Config
from stream_engine.messages.transport import EngineClient
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

DESCRIPTION = """
Market data arrives on Kafka; each symbol has a resident model session; a question about it is answered from the
session's ready distribution in well under a millisecond where a calibrated gate fires, else by a decode.
Every error has the shape `{"error": {"type", "message", "param"?, "code"?}}`.
"""


BEAT_EVERY_S = 0.5


def create_app(config: Config, beat: Callable[[], None] = lambda: None) -> FastAPI:
    """An application that talks to the engine and the ready board that ``config`` names. ``beat`` is told that the
    event loop turns.

    Neither has to be there yet: sockets connect when the engine comes, and a missing board is a miss.
    """

    metrics = ApiMetrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        # Sockets and locks belong to the process that serves, so they open here, after any fork.
        with claim_worker(config.board.path) as worker:
            app.state.api = state = await open_state(config, metrics, worker)
            tasks = [asyncio.create_task(state.questions.find()), asyncio.create_task(_beat_on(beat))]
            try:
                yield {COUNT_REFUSED: metrics.connection_refused}
            finally:
                for task in tasks:
                    task.cancel()
                await state.close()

    app = FastAPI(
        title="stream-engine",
        description=DESCRIPTION,
        version="1",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    install_error_handlers(app)
    # The query route first: the id of a session takes slashes, and would swallow it.
    routers = [
        module.router for module in (query, sessions, standing_queries, calibration, events, health, documents)
    ]
    resources = Resources([*(route for router in routers for route in router.routes), *app.routes])
    app.add_middleware(
        Edge,
        metrics=metrics,
        resources=resources,
        browsers=BrowserRules(config.api.host, config.api.hosts, config.api.origins),
        max_body_bytes=config.api.max_body_bytes,
    )
    if config.api.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.api.origins,
            allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "X-API-Key"],
            expose_headers=["Location", "Retry-After"],
        )
    for router in routers:
        app.include_router(router)
    _document(app, config.api)
    return app


async def _beat_on(beat: Callable[[], None]) -> None:
    while True:
        beat()
        await asyncio.sleep(BEAT_EVERY_S)


async def open_state(config: Config, metrics: ApiMetrics, worker: int) -> ApiState:
    """The running parts of API worker ``worker``."""
    engine = EngineClient(config.transport, Skipped(log, count=metrics.skipped))
    await engine.start()
    hub = EventHub(engine, metrics, config.api.event_queue)
    hub.start()
    questions = QuestionRouter.of_model(config.engine.model, config.engine.adapter)
    fast_path = FastPath(config.board.path, worker, lambda: questions.digest, metrics, config.risk.check_share)
    return ApiState(
        config=config, engine=engine, events=hub, fast_path=fast_path, metrics=metrics, questions=questions
    )


def _document(app: FastAPI, settings: ApiSettings) -> None:
    """Put the bodies' own schemas into the OpenAPI document, which the routes refer to, with what is set here."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = components()
        schemas["QueryBody"]["properties"]["wait_ms"]["maximum"] = settings.max_wait_ms
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
