"""``/v1/sessions``: what is resident."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from query_api.errors import ApiError
from query_api.pages import Page
from query_api.schemas import Deleted, SessionList, responses
from query_api.state import checked_id, reply_json, state_of
from stream_engine.messages import Done, SessionDelete, SessionInfo, Sessions, SessionsRequest
from stream_engine.messages.bounds import MAX_PAGE

ASKS_A_PAGE = 20
"""Messages to the engine for one page: where a pattern leaves most sessions out, the page is short."""

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])


@router.get("", responses=responses(SessionList, 422, 503), summary="List sessions")
async def list_sessions(
    request: Request, limit: int = 100, after: str = "", session: str | None = None
) -> Response:
    """The sessions of this node in the order of their ids, with state, version, size and last bars: `limit` of
    those behind `after`, of all or of a pattern. Those that sleep are not among them."""
    state = state_of(request)
    page = Page.of(state, limit, after, session)
    found: list[SessionInfo] = []
    last: str | None = page.after
    asked = 0
    while last is not None and len(found) < page.limit and asked < ASKS_A_PAGE:
        asked += 1
        room = min(page.limit - len(found), MAX_PAGE)
        message = SessionsRequest(after=last, limit=room, pattern=page.pattern, visible=page.visible)
        reply = await state.ask(message, Sessions)
        found.extend(reply.sessions)
        last = reply.next
    return reply_json(SessionList(tuple(found), last))


# The id takes slashes, so that `BTC/USD` works whether or not a client or a proxy keeps its `%2F`.
@router.get("/{session:path}", responses=responses(SessionInfo, 404, 422, 503), summary="Show one session")
async def show_session(request: Request, session: str) -> Response:
    """One session, by its stream key."""
    name = checked_id(session, "session")
    reply = await state_of(request).ask(SessionsRequest(name), Sessions)
    if not reply.sessions:
        raise ApiError(404, "not_found_error", f"no session {name!r}", param="session")
    return reply_json(reply.sessions[0])


@router.delete("/{session:path}", responses=responses(Deleted, 404, 422, 503), summary="Delete a session")
async def delete_session(request: Request, session: str) -> Response:
    """Drops the session's state. One that is fed from Kafka comes back with its next record."""
    name = checked_id(session, "session")
    done = await state_of(request).ask(SessionDelete(name), Done)
    return reply_json(Deleted(id=name, object="session", detail=done.detail))
