"""A fake model for the engine's tests: it remembers which token lies in which cell."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stream_engine.decision.gate import Gate
from stream_engine.engine.engine import Engine
from stream_engine.messages import Ack, Answer, ErrorReply, Event, Query, Record, Restore
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Segment, lay_out
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.session.cell_budget import BudgetShape
from stream_engine.session.session import Session, Source
from tests.support.batches import batch_of

TOPIC = "market.bars"


class FakeRunner:
    """Answers depend on the whole token path, read back from the cells: a cell that the engine got wrong
    (not copied, overwritten, reused at the wrong place) changes the answer."""

    def __init__(self, cells: int, answers: Sequence[int]) -> None:
        self.cells = [-1] * cells
        self.answers = list(answers)
        self.steps: list[tuple[Segment, ...]] = []
        self.copied = 0

    def predict(self, path: Sequence[int]) -> Distribution:
        digest = hashlib.blake2b(repr(list(path)).encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        top1 = self.answers[number % len(self.answers)]
        return Distribution(top1, 0, (number >> 8) % 1000 / 100, 5.0, 6.0, 0.9)

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        lay_out(segments)  # the real layout's own checks: collisions, overlaps
        self.steps.append(tuple(segments))
        results = []
        for segment in segments:
            resident = self.cells[segment.base : segment.base + segment.length]
            assert -1 not in resident, "a segment stands on cells that were never written"
            self.cells[segment.base + segment.length : segment.base + segment.live_end] = segment.append
            live = [*resident, *segment.append]
            branches = []
            for branch in segment.branches:
                reused = [self.cells[cell] for cell in segment.cells(branch.reused_cell, branch.reused)]
                for cell, token in zip(segment.cells(branch.cell, len(branch.tokens)), branch.tokens, strict=True):
                    self.cells[cell] = token
                branches.append(self.predict([*live[: segment.trunk(branch)], *reused, *branch.tokens]))
            results.append(SegmentResult(tuple(branches)))
        return results

    def copy(self, source: int, target: int, count: int) -> None:
        self.copied += count
        self.cells[target : target + count] = self.cells[source : source + count]


@dataclass
class Bench:
    """An engine on the fake model, with everything it sent out."""

    engine: Engine
    runner: FakeRunner
    builder: TokenBuilder
    shape: BudgetShape
    gate: Gate
    events: list[Event] = field(default_factory=list)
    replies: list[Answer | ErrorReply] = field(default_factory=list)

    def ask(self, session: str, question: str, **options: Any) -> Answer | ErrorReply:
        """Ask and run until the reply is there."""
        before = len(self.replies)
        self.engine.queries.ask(Query(session, question, **options), self.replies.append)
        self.engine.run_until_idle()
        assert len(self.replies) == before + 1, "every query gets exactly one reply"
        return self.replies[-1]

    def feed(self, records: Iterable[Record], follows: int, *, run: bool = True) -> list[Ack]:
        """One batch of partition 0, and what it earned."""
        batch = tuple(records)
        refused = self.engine.ingest.take(batch_of(batch, follows))
        assert refused is None, refused
        if run:
            self.engine.run_until_idle()
            self.engine.check_integrity()
        return self.engine.ingest.settle()

    def claim(self, *records: Record, generation: int = 1) -> None:
        """Restore the sessions of partition 0 that left a window when they had one record."""
        windows = []
        for record in records:
            session = Session(record.key, self.builder, Source(TOPIC, 0))
            session.apply(record)
            windows.append(session.window_message())
        self.engine.ingest.restore(Restore(TOPIC, 0, generation, tuple(windows)))

    def expected(self, session: str, question: str | None = None) -> Distribution:
        """The model's own answer on the token log, from scratch."""
        entry = self.builder.generic_entry if question is None else self.builder.query_entry(question)
        return self.runner.predict([*self.engine.sessions[session].tokens, *entry])
