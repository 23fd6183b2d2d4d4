"""All that changes while an engine runs."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from stream_engine.config.engine import EngineSettings
from stream_engine.messages.counters import EngineCounters
from stream_engine.model.render.rendering import Builder
from stream_engine.session.cell_budget import BudgetShape, CellBudget
from stream_engine.standing.registered_queries import RegisteredQueries
from stream_engine.state.live_gate import LiveGate
from stream_engine.state.partitions import PartitionTable
from stream_engine.state.publication import Publication, Unpublished
from stream_engine.state.scheduler import Scheduler
from stream_engine.state.session_table import SessionTable


@dataclass(frozen=True, slots=True)
class EngineState:
    """Data only: what works on it are the managers, each of which receives the parts that it uses. One thread owns
    it all."""

    boot_id: str
    sessions: SessionTable
    partitions: PartitionTable
    scheduler: Scheduler
    budget: CellBudget
    standing: RegisteredQueries
    publication: Publication
    gate: LiveGate
    counters: EngineCounters


def new_state(
    settings: EngineSettings,
    builder: Builder,
    shape: BudgetShape,
    gate: LiveGate,
    publication: Publication | None = None,
) -> EngineState:
    """Of an engine that has just started. Without a ``publication`` it is for use in this process only."""
    boot_id = uuid4().hex
    return EngineState(
        boot_id=boot_id,
        sessions=SessionTable(builder),
        partitions=PartitionTable(boot_id),
        scheduler=Scheduler(settings.commit_every),
        budget=CellBudget(shape),
        standing=RegisteredQueries(builder),
        publication=Unpublished() if publication is None else publication,
        gate=gate,
        counters=EngineCounters(),
    )
