"""``/v1/standing-queries``: questions that are asked again on every commit."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from query_api.bodies import read_body
from query_api.errors import ApiError
from query_api.schemas import Deleted, StandingBody, StandingList, request_body, responses
from query_api.state import checked_id, reply_json, state_of
from stream_engine.messages import Done, StandingDelete, StandingQueries, StandingRequest, StandingShown

PATH = "/v1/standing-queries"
router = APIRouter(prefix=PATH, tags=["standing queries"])


@router.post(
    "",
    status_code=201,
    responses=responses(StandingShown, 409, 413, 415, 422, 503, status=201),
    openapi_extra=request_body(StandingBody),
    summary="Register a standing query",
)
async def register(request: Request) -> Response:
    """201 once the engine has applied it: from then on every commit of a matching session evaluates it."""
    state = state_of(request)
    body = await read_body(request, StandingBody)
    state.questions.require_supported(state.questions.route(body.question, body.session))
    reply = await state.ask(body.message(), StandingQueries)
    query = reply.queries[0]
    return reply_json(query, 201, {"location": f"{PATH}/{quote(query.id, safe='')}"})


@router.get("", responses=responses(StandingList, 503), summary="List standing queries")
async def list_standing(request: Request) -> Response:
    """Every registered standing query."""
    reply = await state_of(request).ask(StandingRequest(), StandingQueries)
    return reply_json(StandingList(reply.queries))


@router.get("/{query:path}", responses=responses(StandingShown, 404, 422, 503), summary="Show one standing query")
async def show_standing(request: Request, query: str) -> Response:
    """One standing query, by its id, and how far it is."""
    name = checked_id(query, "query")
    reply = await state_of(request).ask(StandingRequest(name), StandingQueries)
    if not reply.queries:
        raise ApiError(404, "not_found_error", f"no standing query {name!r}", param="query")
    return reply_json(reply.queries[0])


@router.delete("/{query:path}", responses=responses(Deleted, 404, 422, 503), summary="Remove a standing query")
async def remove_standing(request: Request, query: str) -> Response:
    """Stops its evaluation on every session."""
    name = checked_id(query, "query")
    done = await state_of(request).ask(StandingDelete(name), Done)
    return reply_json(Deleted(id=name, object="standing_query", detail=done.detail))
