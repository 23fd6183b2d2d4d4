"""``GET /v1/events``: server-sent events, a snapshot first and then what is newer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
from fastapi import APIRouter, Request
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from query_api.errors import ApiError, ErrorEnvelope, invalid
from query_api.events import EventFilter, Frame, Subscription, SubscriptionEnded, SubscriptionState, named_body
from query_api.schemas import (
    AnswerChangedBody,
    CommittedBody,
    ConnectedBody,
    HeartbeatBody,
    NotEvaluatedBody,
    RiskChangedBody,
    StreamEndBody,
    event_schema,
    reference,
)
from query_api.state import ApiState, state_of
from stream_engine.messages import Snapshot, SnapshotRequest, Status, StatusRequest

router = APIRouter(tags=["events"])

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_ENCODER = msgspec.json.Encoder()
_EVENTS = [
    event_schema(name, kind)
    for name, kind in (
        ("connected", ConnectedBody),
        ("answer_changed", AnswerChangedBody),
        ("committed", CommittedBody),
        ("not_evaluated", NotEvaluatedBody),
        ("risk_changed", RiskChangedBody),
        ("heartbeat", HeartbeatBody),
        ("gap", StreamEndBody),
        ("shutdown", StreamEndBody),
    )
]


class EventStream(EventSourceResponse):
    """An event stream that gives its subscription back however it ends, even before its first byte."""

    def __init__(self, state: ApiState, subscription: Subscription, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, headers=_HEADERS)
        self._state = state
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._state.events.unsubscribe(self._subscription)


@router.get(
    "/v1/events",
    # With the class itself here the framework would want the route to be a generator, which could not refuse
    # with a 503 any more.
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "`connected`, the newest answers as `answer_changed`, then `answer_changed`, "
            "`committed`, `not_evaluated`, `risk_changed` and `heartbeat`; `gap` or `shutdown` is a last event. "
            "Ids are `boot:sequence`.",
            "content": {"text/event-stream": {"itemSchema": {"oneOf": _EVENTS}}},
        },
        422: {"description": "A parameter is given twice", "content": reference(ErrorEnvelope)},
        503: {"description": "The engine does not answer", "content": reference(ErrorEnvelope)},
    },
    summary="Follow answers and commits",
)
async def events(request: Request, session: str | None = None, query: str | None = None) -> EventStream:
    """Of one session, of one standing query (then without `committed`), or of all."""
    state = state_of(request)
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if count > 1:
            raise invalid(f"{name} is given {count} times", param=name)
    wanted = EventFilter(session or None, query or None)
    subscription = state.events.subscribe()  # before the snapshot, so that nothing falls between the two
    try:
        position, snapshot = await _snapshot(state, wanted)
    except BaseException:
        state.events.unsubscribe(subscription)
        raise
    return EventStream(state, subscription, _stream(state, wanted, subscription, position, snapshot))


async def _snapshot(state: ApiState, wanted: EventFilter) -> tuple[str, Snapshot]:
    """The engine's boot id and the newest answers. Should the engine restart between the two questions, the
    next event shows it."""
    status = await state.ask(StatusRequest(), Status)
    return status.boot_id, await state.ask(SnapshotRequest(wanted.session, wanted.query), Snapshot)


async def _stream(
    state: ApiState, wanted: EventFilter, subscription: Subscription, boot_id: str, snapshot: Snapshot
) -> AsyncIterator[bytes]:
    resync: Literal["engine_restarted", "gap"] | None = None
    sequence = snapshot.sequence
    try:
        while True:
            for chunk in _opening(wanted, boot_id, snapshot, resync):
                yield chunk
            sequence = snapshot.sequence
            while True:
                frame = await subscription.next(state.config.api.heartbeat_s)
                if frame is None:
                    yield _heartbeat(boot_id, sequence)
                    continue
                if frame.boot_id == boot_id and frame.sequence <= sequence:
                    continue  # the snapshot has it
                resync = _break(boot_id, sequence, frame)
                if resync is not None:
                    break
                sequence = frame.sequence
                if wanted.accepts(frame.event):
                    yield _event(frame.name, frame.data, boot_id, sequence)
            while True:
                subscription.forget()
                try:
                    boot_id, snapshot = await _snapshot(state, wanted)
                    break
                except ApiError:  # it is away again; the client learns that by silence, not by a cut
                    yield _heartbeat(boot_id, sequence)
    except SubscriptionEnded:
        slow = subscription.state is SubscriptionState.LAGGING
        message = "too far behind; connect again for a new snapshot" if slow else "the server stops"
        end = StreamEndBody(message, sequence)
        yield _event("gap" if slow else "shutdown", _json(end), boot_id, sequence)


def _break(boot_id: str, sequence: int, frame: Frame) -> Literal["engine_restarted", "gap"] | None:
    """Why ``frame`` does not continue the sequence, if it does not."""
    if frame.boot_id != boot_id:
        return "engine_restarted"
    return "gap" if frame.sequence != sequence + 1 else None


def _opening(
    wanted: EventFilter, boot_id: str, snapshot: Snapshot, resync: Literal["engine_restarted", "gap"] | None
) -> list[bytes]:
    sequence = snapshot.sequence
    connected = ConnectedBody(
        boot_id=boot_id, sequence=sequence, session=wanted.session, query=wanted.query, resync=resync
    )
    chunks = [_event("connected", _json(connected), boot_id, sequence)]
    for answer in snapshot.answers:
        name, body = named_body(answer)
        chunks.append(_event(name, _json(body), boot_id, sequence))
    return chunks


def _heartbeat(boot_id: str, sequence: int) -> bytes:
    return _event("heartbeat", _json(HeartbeatBody(sequence, int(time.time() * 1000))), boot_id, sequence)


def _event(name: str, data: str, boot_id: str, sequence: int) -> bytes:
    return format_sse_event(event=name, data_str=data, id=f"{boot_id}:{sequence}")


def _json(body: msgspec.Struct) -> str:
    return _ENCODER.encode(body).decode()
