"""Bodies of the HTTP API: strict requests, and responses that are the engine's messages without their tags."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from query_api.errors import ErrorEnvelope, invalid
from stream_engine.messages import (
    Answer,
    AnswerChanged,
    CalibrationReport,
    Committed,
    NotEvaluated,
    OffsetBound,
    PathRequest,
    Query,
    RiskChanged,
    SessionInfo,
    StandingPut,
    StandingShown,
)

MAX_ID = 256
"""Longest session id or standing query id, in characters."""

_INT64 = 2**63 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=_INT64)]
Question = Annotated[str, msgspec.Meta(min_length=1, max_length=4096, examples=["What is the trend?"])]
Identifier = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID)]

Body = TypeVar("Body", bound=msgspec.Struct)
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")


# --- requests ----------------------------------------------------------------------------------------


class MinOffset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answer only from a state that has applied this offset of this partition of the session's topic."""

    partition: Count
    offset: Count


class QueryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question, the path it may take and how fresh the answer must be. ``wait_ms`` is how long to wait for
    the freshness bounds before the answer is 409."""

    question: Question
    path: PathRequest = "auto"
    max_age_ms: Count | None = None
    min_version: Count | None = None
    min_offset: MinOffset | None = None
    wait_ms: Count = 0

    def message(self, session: str) -> Query:
        bound = self.min_offset
        return Query(
            session=session,
            question=self.question,
            path=self.path,
            max_age_ms=self.max_age_ms,
            min_version=self.min_version,
            min_offset=None if bound is None else OffsetBound(bound.partition, bound.offset),
            wait_ms=self.wait_ms,
        )


class StandingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question to keep asking. ``session`` is a session id or a pattern such as ``EUR*`` or ``*``."""

    session: Identifier
    question: Question
    on: Literal["change", "commit"] = "change"
    id: Identifier | None = None

    def message(self) -> StandingPut:
        return StandingPut(self.session, self.question, self.on, self.id)


def decode(kind: type[Body], content: bytes) -> Body:
    """The request body as ``kind``. Raises a 422 ApiError that names the field at fault."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        message = str(error)
        field = _UNKNOWN.search(message) or _MISSING.search(message)
        path = _PATH.search(message)
        names = [match.group(1) for match in (path, field) if match and match.group(1)]
        raise invalid(_PATH.sub("", message), param=".".join(names) or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from None


# --- responses ---------------------------------------------------------------------------------------


class AnswerBody(Answer, frozen=True, tag=False):
    """An answer with its evidence: which path it took, which data it saw, how sure the model was."""


class AnswerChangedBody(AnswerChanged, frozen=True, tag=False):
    """Data of an ``answer_changed`` event."""


class CommittedBody(Committed, frozen=True, tag=False):
    """Data of a ``committed`` event."""


class NotEvaluatedBody(NotEvaluated, frozen=True, tag=False):
    """Data of a ``not_evaluated`` event: a standing query with ``on: commit`` has no answer of this commit."""


class RiskChangedBody(RiskChanged, frozen=True, tag=False):
    """Data of a ``risk_changed`` event: risk control has raised a class's tau, or closed its fast path."""


class ConnectedBody(msgspec.Struct, frozen=True):
    """Data of a ``connected`` event: the newest answers as of ``sequence`` follow it, then newer events only.
    ``resync`` says why a stream starts over: ``engine_restarted`` or ``gap``; None at the beginning."""

    boot_id: str
    sequence: int
    session: str | None
    query: str | None
    resync: Literal["engine_restarted", "gap"] | None = None


class HeartbeatBody(msgspec.Struct, frozen=True):
    """Data of a ``heartbeat`` event; ``sequence`` is that of the last event seen."""

    sequence: int
    time_ms: int


class StreamEndBody(msgspec.Struct, frozen=True):
    """Data of the last event of a stream that the server ends: ``gap`` (too slow) or ``shutdown``."""

    message: str
    sequence: int


class SessionList(msgspec.Struct, frozen=True):
    """``next`` is the ``after`` of the next page, null on the last one."""

    data: tuple[SessionInfo, ...]
    next: str | None = None
    object: Literal["list"] = "list"


class StandingList(msgspec.Struct, frozen=True):
    data: tuple[StandingShown, ...]
    object: Literal["list"] = "list"


class Deleted(msgspec.Struct, frozen=True):
    """``detail`` says how long the deletion lasts: a Kafka-fed session comes back with its next record."""

    id: str
    object: Literal["session", "standing_query"]
    detail: str
    deleted: bool = True


class Liveness(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """``lag_records`` counts records in the log that no answer has seen yet, over all partitions; None where it is
    not known. A lag alone is no reason against asking: each answer says how old its data is. ``degraded`` says why
    nothing newer comes at the moment; ``lag_stale``, that the lag is of before that."""

    model: str
    uptime_s: float
    lag_records: int | None
    degraded: tuple[str, ...] = ()
    lag_stale: bool = False
    status: Literal["ready"] = "ready"


class NotReady(ErrorEnvelope, frozen=True):
    """The error shape, plus each reason by itself."""

    reasons: tuple[str, ...]
    lag_records: int | None = None
    lag_stale: bool = False
    status: Literal["unavailable"] = "unavailable"


def untagged(kind: type[Body], message: msgspec.Struct) -> Body:
    """``message`` as its HTTP body ``kind``, which has the same fields and no tag."""
    return kind(*(getattr(message, name) for name in kind.__struct_fields__))


# --- OpenAPI -----------------------------------------------------------------------------------------

_DOCUMENTED = (
    QueryBody,
    StandingBody,
    AnswerBody,
    AnswerChangedBody,
    CommittedBody,
    NotEvaluatedBody,
    RiskChangedBody,
    CalibrationReport,
    ConnectedBody,
    HeartbeatBody,
    StreamEndBody,
    SessionInfo,
    SessionList,
    StandingShown,
    StandingList,
    Deleted,
    Liveness,
    Readiness,
    NotReady,
    ErrorEnvelope,
)


def components() -> dict[str, Any]:
    """JSON schemas of every body, made from the very types that encode and decode them."""
    made = msgspec.json.schema_components(_DOCUMENTED, ref_template="#/components/schemas/{name}")[1]
    volume = made["Bar"]["prefixItems"][5]
    volume["type"] = ["number", "null"]  # JSON has no NaN
    return made


def reference(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}


def event_schema(name: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Of one server-sent event."""
    data = {"type": "string", "contentMediaType": "application/json"}
    content = {"contentSchema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
    properties = {"event": {"const": name}, "id": {"type": "string"}, "data": data | content}
    return {"type": "object", "properties": properties, "required": ["event", "id", "data"]}


def request_body(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """``openapi_extra`` of a route that decodes ``kind`` itself."""
    return {"requestBody": {"required": True, "content": reference(kind)}}


def responses(kind: type[msgspec.Struct], *errors: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route: its success body, and the error shape under each status in ``errors`` and 403."""
    documented: dict[int | str, dict[str, Any]] = {
        code: {"description": _MEANING[code], "content": reference(ErrorEnvelope)} for code in (403, *errors)
    }
    documented[status] = {"description": "Success", "content": reference(kind)}
    return documented


_MEANING = {
    403: "A web page's request: under a name that is not ours, or a write from another origin",
    404: "No such session or standing query",
    409: "The freshness bounds are not met, or no ready distribution for `path: fast`",
    413: "The body is too large",
    415: "The body is compressed, in several parts or not UTF-8",
    422: "The request is wrong, or the model does not answer such questions",
    429: "As many queries as may wait for the engine do; see Retry-After",
    503: "The engine does not answer, or the session is being rebuilt; see Retry-After",
}
