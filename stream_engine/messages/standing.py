"""Standing queries, and what a registry that keeps them on a topic says and hears."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stream_engine.messages.bounds import (
    MAX_ITEMS,
    Count,
    Id,
    Name,
    Offset,
    OffsetBefore,
    Question,
)
from stream_engine.messages.events import AnswerChanged
from stream_engine.messages.records import Rejected

MAX_SNAPSHOT_PARTS = 64
"""Of a registry's snapshot, each of a bounded size."""


class StandingQuery(msgspec.Struct, frozen=True):
    """A registered question. ``session`` is a session id or a pattern such as ``EUR*`` or ``*``."""

    id: Id
    session: Id
    question: Question
    on: Literal["change", "commit"]
    class_: Name = msgspec.field(name="class")


class StandingShown(StandingQuery, frozen=True):
    """A registered question and how far it is. ``sessions_evaluated`` counts the sessions that have an answer,
    ``sessions_waiting`` those whose present version has none yet: they are evaluated when there is time."""

    sessions_evaluated: Count = 0
    sessions_waiting: Count = 0


class RegistryHello(msgspec.Struct, frozen=True, tag=True):
    """First message of a registry and its sign of life; answered by ``Welcome``."""


class StandingApply(msgspec.Struct, frozen=True, tag=True):
    """A record of the standing-query topic; ``query`` None deletes. ``token`` is that of the ``StandingWrite``
    which made it, where one did. Answered by ``RegistryApplied``."""

    offset: Offset
    id: Name
    query: StandingPut | None
    token: Name | None = None


class RegistrySnapshot(msgspec.Struct, frozen=True, tag=True):
    """All standing queries up to ``offset`` of their topic, in its order, and what the answers topic says was
    answered last. Answered by ``RegistryApplied``; the partitions are assigned after that. It comes in as many
    parts as it needs: ``part`` counts them, and ``more`` follow but for the last one, which is answered."""

    offset: OffsetBefore
    queries: Annotated[tuple[StandingApply, ...], Meta(max_length=MAX_ITEMS)]
    answers: Annotated[tuple[AnswerChanged, ...], Meta(max_length=MAX_ITEMS)]
    part: Annotated[int, Meta(ge=0, lt=MAX_SNAPSHOT_PARTS)] = 0
    more: bool = False


class StandingWrite(msgspec.Struct, frozen=True, tag=True):
    """Write a standing query to its topic, a tombstone where ``query`` is None, with ``token`` in its headers."""

    token: Name
    id: Id
    query: StandingPut | None


class RegistryApplied(msgspec.Struct, frozen=True, tag=True):
    """Everything up to ``offset`` of the standing-query topic is applied, but for what was ``refused``;
    ``snapshot`` is whether this answers a ``RegistrySnapshot``."""

    boot_id: Name
    offset: OffsetBefore
    snapshot: bool
    refused: Annotated[tuple[Rejected, ...], Meta(max_length=MAX_ITEMS)] = ()


class StandingPut(msgspec.Struct, frozen=True, tag=True):
    """Register a standing query; ``id`` None lets the engine choose. Answered by ``StandingQueries``
    with the one query, after it is applied."""

    pattern: Id
    question: Question
    on: Literal["change", "commit"] = "change"
    id: Id | None = None


class StandingRequest(msgspec.Struct, frozen=True, tag=True):
    id: Id | None = None


class StandingDelete(msgspec.Struct, frozen=True, tag=True):
    id: Id


class StandingQueries(msgspec.Struct, frozen=True, tag=True):
    queries: Annotated[tuple[StandingShown, ...], Meta(max_length=MAX_ITEMS)]
