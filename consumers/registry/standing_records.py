"""The record format of the standing-query topic: key = query id, value = JSON, null = deletion."""

from __future__ import annotations

from typing import Literal

import msgspec

from consumers.wire.reasons import DeadLetter, RawRecord, Reason
from stream_engine.messages import StandingApply, StandingPut
from stream_engine.messages.bounds import MAX_ID, UNREADABLE, Id, Question
from stream_engine.standing.answer_book import KEY_SEPARATOR

TOKEN_HEADER = "token"  # noqa: S105 - names a request, guards nothing


class StandingRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question that is asked again on every commit of the sessions that ``session`` covers: a session id, or a
    pattern such as ``EUR*`` or ``*``. ``on: change`` asks for changed answers only."""

    session: Id
    question: Question
    on: Literal["change", "commit"] = "change"


_decode = msgspec.json.Decoder(StandingRecord).decode
_encode = msgspec.json.Encoder().encode


def encode_standing(query: StandingPut) -> bytes:
    """The record's value."""
    return _encode(StandingRecord(query.pattern, query.question, query.on))


def parse_standing(raw: RawRecord, token: str | None = None) -> StandingApply | DeadLetter:
    """What a record says, or why it says nothing."""
    if raw.fault is not None:
        return DeadLetter(raw, raw.value, Reason.UNREADABLE, raw.fault)
    name = query_id(raw.key)
    if name is None:
        detail = f"the key is the query's id: 1 to {MAX_ID} characters of UTF-8 without {KEY_SEPARATOR!r}"
        return DeadLetter(raw, raw.value, Reason.KEY_INVALID, detail)
    if raw.value is None:
        return StandingApply(raw.offset, name, None, token)
    try:
        record = _decode(raw.value)
    except msgspec.ValidationError as error:
        return DeadLetter(raw, raw.value, Reason.NOT_A_STANDING_QUERY, str(error))
    except UNREADABLE as error:
        return DeadLetter(raw, raw.value, Reason.NOT_JSON, str(error))
    put = StandingPut(record.session, record.question, record.on, name)
    return StandingApply(raw.offset, name, put, token)


def query_id(key: bytes | None) -> str | None:
    """The id that a record's key names; None where it can be none."""
    try:
        text = (key or b"").decode()
    except UnicodeDecodeError:
        return None
    return text if 0 < len(text) <= MAX_ID and KEY_SEPARATOR not in text else None
