"""Entries: the tokens appended at the live end to reach a decision point (Eq. 1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the API process uses the keys and must not load a tokenizer
    from stream_engine.model.render.rendering import Builder

GENERIC_KEY = ""
"""Key of the generic header on the ready board; a standing query's key is its exact question."""


class EntryKind(Enum):
    GENERIC = "generic"
    STANDING = "standing"
    PROMOTED = "promoted"
    """An ad-hoc question that is asked often. Like the generic header it takes no cells from another session."""
    ENVELOPE = "envelope"


@dataclass(frozen=True, slots=True)
class Entry:
    """``every_commit`` marks a standing query that asked to be evaluated at each commit: it is never left out
    of a step in favour of something else. ``class_name`` is the class of the answers expected there."""

    key: str
    kind: EntryKind
    tokens: tuple[int, ...]
    class_name: str | None
    every_commit: bool = False


def entry_key(question: str) -> str:
    """A question as a key: white space collapsed, nothing else, so that equal keys mean equal tokens."""
    return " ".join(question.split())


def generic_entry(builder: Builder) -> Entry:
    """Close of the user turn and the assistant header: what every question ends with."""
    return Entry(GENERIC_KEY, EntryKind.GENERIC, builder.generic_entry, builder.profile.generic_class.name)


def standing_entry(builder: Builder, question: str, class_name: str | None, every_commit: bool) -> Entry:
    """A registered question with its close and header."""
    return Entry(
        key=entry_key(question),
        kind=EntryKind.STANDING,
        tokens=builder.query_entry(question),
        class_name=class_name,
        every_commit=every_commit,
    )


def envelope_entry(builder: Builder) -> Entry:
    """The tokens that frame a returning tool result (section 3.5 of the paper)."""
    return Entry("tool", EntryKind.ENVELOPE, builder.tool_envelope, None)


def common_prefix(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Length of the longest common token prefix."""
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
