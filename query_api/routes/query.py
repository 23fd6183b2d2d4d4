"""``POST /v1/sessions/{session}/query``: one question, answered on the fastest path that is right."""

from __future__ import annotations

import time

import msgspec
from fastapi import APIRouter, Request
from starlette.background import BackgroundTask
from starlette.responses import Response

from query_api.bodies import read_body
from query_api.errors import ApiError, invalid
from query_api.schemas import AnswerBody, QueryBody, request_body, responses, untagged
from query_api.state import ApiState, checked_id, reply_json, state_of
from stream_engine.messages import Answer, Query

router = APIRouter(tags=["queries"])


@router.post(
    "/v1/sessions/{session:path}/query",
    responses=responses(AnswerBody, 404, 409, 413, 415, 422, 429, 503),
    openapi_extra=request_body(QueryBody),
    summary="Ask a session a question",
)
async def ask(request: Request, session: str) -> Response:
    """Answered from the session's ready distribution where its gate fires (`path: "fast"`), else by a decode
    on the resident state. The answer names the data it saw: version, partition, offset, event time, age."""
    received_ns = time.perf_counter_ns()
    state = state_of(request)
    body = await read_body(request, QueryBody)
    answer = await answer_query(state, body.message(checked_id(session, "session")))
    latency_ns = time.perf_counter_ns() - received_ns
    state.metrics.answer(answer.path, answer.routed_by, latency_ns / 1e9)
    reply = reply_json(msgspec.structs.replace(answer, latency_us=latency_ns // 1000))
    if state.fast_path.checks:
        reply.background = BackgroundTask(state.hand_over_checks)  # runs once the reply is sent
    return reply


async def answer_query(state: ApiState, query: Query) -> AnswerBody:
    """The fast path where there is one, else the engine, which also does all the waiting."""
    if query.wait_ms > state.config.api.max_wait_ms:
        raise invalid(f"at most {state.config.api.max_wait_ms} ms", param="wait_ms")
    route = state.questions.route(query.question, query.session)
    if query.path != "full":
        answer = state.fast_path.answer(query, route)
        if answer is not None:
            return answer
    # Only now: a registered standing query is answered whatever its wording.
    try:
        state.questions.require_supported(route)
    except ApiError:
        state.metrics.refused()
        raise
    return untagged(AnswerBody, await state.ask(query, Answer, wait_s=query.wait_ms / 1000))
