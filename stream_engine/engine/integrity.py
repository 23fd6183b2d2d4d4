"""What holds between two steps, whatever happened. Looked at when idle where that is asked for, and in tests."""

from __future__ import annotations

from collections.abc import Iterable

from stream_engine.answering.registration import Registration
from stream_engine.decision.entry import Entry
from stream_engine.engine.session_entries import SessionEntries
from stream_engine.session.cell_budget import CellBudget, Use
from stream_engine.session.session import Session
from stream_engine.session.token_hash import token_hash
from stream_engine.state.publication import Publication
from stream_engine.state.scheduler import Scheduler


def check_integrity(
    sessions: Iterable[Session],
    budget: CellBudget,
    scheduler: Scheduler,
    publication: Publication,
    entries: SessionEntries,
    registration: Registration,
) -> None:
    """Cells = tokens = boundary, for every session; no extent overlaps another; and what is ready, here and on the
    board, is of the session's present log. Raises AssertionError with what differs."""
    budget.check_integrity()
    for session in sessions:
        session.check_integrity()
        _check_cells(session, budget)
        commit = scheduler.commits.get(session.id)
        under_way = commit is not None and commit.started
        asked = {entry.key: entry for entry in entries.of(session)}
        leaving = {key for key in session.ready if registration.is_leaving(session.id, key)} - asked.keys()
        _check_ready(session, asked, leaving, publication, under_way)


def _check_cells(session: Session, budget: CellBudget) -> None:
    shape, name = budget.shape, f"session {session.id!r}"
    if budget.base_of(session.id) is None:
        assert session.resident == 0, f"{name}: cells counted without an extent"
        assert not session.branches, f"{name}: branches without an extent"
        assert session.second is None, f"{name}: a second slab without an extent"
        return
    assert shape.headroom(len(session.tokens)) >= 0, f"{name}: its log has no room in its slab"
    end = shape.slab if budget.lent(session.id, Use.BRANCHES) is None else shape.share
    assert session.scratch_end <= end, f"{name}: scratch cells up to {session.scratch_end}, there are {end}"
    if session.second is not None:
        slab = session.second
        assert slab.resident <= len(slab.tokens) <= shape.extent, f"{name}: the second slab has no room"
    lent = budget.lent(session.id, Use.SECOND_SLAB) is not None
    assert lent == (session.second is not None), f"{name}: a second slab and cells for one go together"


def _check_ready(
    session: Session, entries: dict[str, Entry], leaving: set[str], publication: Publication, under_way: bool
) -> None:
    """``under_way``: a commit's records are in the log and its step has not run; on the board the state before it
    is live until then. Nobody asks for those ``leaving`` any more."""
    name = f"session {session.id!r}"
    for key, ready in session.ready.items():
        if key in leaving:
            continue
        at = len(session.tokens) + len(entries[key].tokens)
        assert ready.position == at, f"{name}: {key!r} is ready at {ready.position}, not at {at}"
    for key, (version, hashed) in {} if under_way else publication.valid(session).items():
        assert key in session.ready, f"{name}: {key!r} is on the board and not ready here"
        if key in leaving:
            continue
        assert version == session.version, f"{name}: {key!r} on the board is of version {version}"
        live = token_hash(session.tokens, entries[key].tokens)
        assert hashed == live, f"{name}: {key!r} on the board is of other tokens"
