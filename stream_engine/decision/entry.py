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
    of a step in favour of something else. ``of_pattern`` marks one that only patterns ask. ``class_name`` is the
    class of the answers expected there."""

    key: str
    kind: EntryKind
    tokens: tuple[int, ...]
    class_name: str | None
    every_commit: bool = False
    of_pattern: bool = False

    @property
    def demands_cells(self) -> bool:
        """As a question does: a session without cells gets those of the least recently used one. A pattern over a
        whole market would take everybody's; its sessions are evaluated on the workbench when there is time, unless
        it asked for every commit."""
        return self.kind is EntryKind.STANDING and (self.every_commit or not self.of_pattern)


def entry_key(question: str) -> str:
    """A question as a key: white space collapsed, nothing else, so that equal keys mean equal tokens."""
    return " ".join(question.split())


def generic_entry(builder: Builder) -> Entry:
    """Close of the user turn and the assistant header: what every question ends with."""
    return Entry(GENERIC_KEY, EntryKind.GENERIC, builder.generic_entry, builder.profile.generic_class.name)


def standing_entry(
    builder: Builder, question: str, class_name: str | None, every_commit: bool, *, of_pattern: bool = False
) -> Entry:
    """A registered question with its close and header."""
    return Entry(
        key=entry_key(question),
        kind=EntryKind.STANDING,
        tokens=builder.query_entry(question),
        class_name=class_name,
        every_commit=every_commit,
        of_pattern=of_pattern,
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
