"""What one API process holds, and how a route reaches it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from fastapi import Request
from starlette.responses import Response

from query_api.errors import ApiError, engine_unavailable, invalid
from query_api.events import EventHub
from query_api.fast_path import FastPath
from query_api.metrics import ApiMetrics
from query_api.questions import QuestionRouter
from query_api.schemas import MAX_ID
from stream_engine.config.config import Config
from stream_engine.messages import ErrorReply, Query, Status, StatusRequest, ToEngine
from stream_engine.messages.transport import EngineClient, EngineUnavailable

PROBE_TIMEOUT_S = 2.0
"""How long health and metrics wait for the engine: a probe that hangs tells less than one that fails."""

Reply = TypeVar("Reply", bound=msgspec.Struct)
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ApiState:
    """The parts of one process."""

    config: Config
    engine: EngineClient
    events: EventHub
    fast_path: FastPath
    metrics: ApiMetrics
    questions: QuestionRouter

    async def ask(self, message: ToEngine, kind: type[Reply], *, wait_s: float = 0.0) -> Reply:
        """The engine's reply of type ``kind``; ``wait_s`` is what the message itself lets the engine wait.

        Raises the ApiError that the engine refused with, or a 503 where it does not answer. An engine whose
        lease has run out is not waited for any longer than another lease would last. The engine is told for how
        long a query is waited for: it drops what is given up here.
        """
        api, lease_s = self.config.api, self.config.board.lease_s
        timeout_s = api.engine_timeout_s if self.fast_path.alive() else min(api.engine_timeout_s, lease_s)
        timeout_s += wait_s
        if isinstance(message, Query):
            message = msgspec.structs.replace(message, patience_ms=math.ceil(timeout_s * 1000))
        try:
            reply = await self.engine.request(message, timeout_s)
        except EngineUnavailable as error:
            raise engine_unavailable(str(error)) from None
        if isinstance(reply, ErrorReply):
            raise ApiError.from_reply(reply)
        if not isinstance(reply, kind):
            raise ApiError(500, "internal_error", f"the engine replied with {type(reply).__name__}")
        return reply

    async def status(self) -> Status | None:
        """The engine's health and counters, None where it does not answer within a probe's time."""
        timeout_s = min(PROBE_TIMEOUT_S, self.config.api.engine_timeout_s)
        try:
            reply = await self.engine.request(StatusRequest(), timeout_s)
        except EngineUnavailable:
            return None
        return reply if isinstance(reply, Status) else None

    async def hand_over_checks(self) -> None:
        """Give the fast answers that are to be checked to the engine, or drop them where it is behind."""
        checks = self.fast_path.checks
        while checks:
            self.metrics.check(self.engine.post(checks.popleft()))

    async def close(self) -> None:
        await self.events.close()
        await self.engine.close()
        self.metrics.close()


def state_of(request: Request) -> ApiState:
    state: ApiState = request.app.state.api
    return state


def checked_id(value: str, param: str) -> str:
    """An id from the path. Raises 422 where it can be no id."""
    if not 0 < len(value) <= MAX_ID:
        raise invalid(f"an id has 1 to {MAX_ID} characters", param=param)
    return value


def reply_json(body: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``body`` encoded straight from its type, without the framework's own serialisation."""
    return Response(_ENCODER.encode(body), status, headers, media_type="application/json")
