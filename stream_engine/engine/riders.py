"""Which decision points ride along with a commit: pre-positioning is best-effort and of the lowest priority."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream_engine.decision.entry import Entry


@dataclass(frozen=True, slots=True)
class Riders:
    """Which entries ride along with a commit. ``deferred`` run alone later; ``skipped`` have no room (the
    headroom check of Alg. 1) and are not run for this version. ``gave_way`` where a deferred one waits for a
    query, for more data or for a step with room: one that only has no room beside the others never rides."""

    riding: tuple[Entry, ...]
    deferred: tuple[Entry, ...]
    skipped: tuple[Entry, ...]
    gave_way: bool


def choose_riders(
    entries: Sequence[Entry],
    *,
    headroom: int,
    step_room: int,
    query_waits: bool,
    more_queued: bool,
    deferrals: int,
    max_deferrals: int,
) -> Riders:
    """Riders of one commit.

    ``headroom`` is ``B`` of Alg. 1 in cells, ``step_room`` the tokens the step still has. Riders wait while a
    query waits, more data for the session is queued or the step is full, but for at most ``max_deferrals``
    commits in a row, and never a standing query that asked for every commit: those may make the step longer by
    one session's entries.
    """
    busy = query_waits or more_queued
    patient = deferrals < max_deferrals
    riding: list[Entry] = []
    deferred: list[Entry] = []
    skipped: list[Entry] = []
    gave_way = False
    for entry in sorted(entries, key=lambda entry: not entry.every_commit):
        length = len(entry.tokens)
        if length > headroom:
            skipped.append(entry)
        elif patient and not entry.every_commit and (busy or length > step_room):
            deferred.append(entry)
            gave_way = True
        elif sum(len(other.tokens) for other in riding) + length > headroom:
            deferred.append(entry)  # it fits, but not beside the others: alone, it reuses their cells
        else:
            riding.append(entry)
            step_room -= length
    return Riders(tuple(riding), tuple(deferred), tuple(skipped), gave_way)
