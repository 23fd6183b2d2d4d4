"""Health and metrics, for orchestrators and for Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import RedirectResponse, Response

from query_api.errors import ErrorBody
from query_api.schemas import Liveness, NotReady, Readiness, reference, responses
from query_api.state import ApiState, reply_json, state_of
from stream_engine.messages import Status

router = APIRouter(tags=["operations"])


@router.get("/", include_in_schema=False)
async def root() -> Response:
    return RedirectResponse("/docs")


@router.get("/health/live", responses=responses(Liveness), summary="Is this process up?")
async def live() -> Response:
    """200 as long as this process serves requests; says nothing about the engine."""
    return reply_json(Liveness())


@router.get(
    "/health/ready",
    responses={
        **responses(Readiness),
        503: {"description": "Not ready; says why", "content": reference(NotReady)},
    },
    summary="Can questions be answered?",
)
async def ready(request: Request) -> Response:
    """200 when the engine says that it makes progress and holds the ready board's lease. It stays 200 while a
    consumer cannot reach Kafka, because answers on what is applied say how old it is; ``degraded`` tells."""
    state = state_of(request)
    status = await state.status()
    reasons = not_ready(state, status)
    if reasons or status is None:
        stale = status is not None and status.lag_stale
        body = NotReady(ErrorBody("not_ready", "; ".join(reasons)), reasons, _lag(status), stale)
        return reply_json(body, 503, {"retry-after": "1"})
    readiness = Readiness(
        model=status.model,
        uptime_s=status.uptime_s,
        lag_records=_lag(status),
        degraded=status.degraded,
        lag_stale=status.lag_stale,
    )
    return reply_json(readiness)


def _lag(status: Status | None) -> int | None:
    return sum(status.lag.values()) if status is not None and status.lag else None


def not_ready(state: ApiState, status: Status | None) -> tuple[str, ...]:
    """Every reason against sending requests here, in words."""
    reasons: list[str] = []
    if status is None:
        reasons.append("the engine does not answer")
    elif not status.ready:
        reasons.extend(status.reasons or ("the engine says that it is not ready",))
    if not state.fast_path.alive():
        reasons.append("the ready board is not there or its engine's heartbeat is too old")
    return tuple(reasons)


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Counters of this API, summed over its workers, and the engine's."""
    state = state_of(request)
    status = await state.status()
    # With several workers this reads files, and other requests do not wait for that.
    text = await asyncio.to_thread(state.metrics.render, status, state.fast_path.alive())
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})
