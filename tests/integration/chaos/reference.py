"""What a run without a single interruption makes of the same log: token logs, versions, answers, dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from consumers.wire.reasons import RawRecord
from consumers.wire.records import parse_records
from stream_engine.config.engine import EngineSettings
from stream_engine.engine.engine import Engine
from stream_engine.messages import Assign, SessionsRequest
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.runner import SegmentResult
from stream_engine.model.forward.step import Segment
from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_gate import build_gate
from stream_engine.process.status import session_infos
from stream_engine.state.engine_state import new_state
from stream_engine.state.live_gate import LiveGate
from tests.integration.chaos.hash_model import predict
from tests.support.batches import batch_of


class _NoModel:
    """Token logs do not depend on what a model says."""

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        word = Distribution(1, 0, 5.0, 5.0, 6.0, 0.9)
        return [SegmentResult((word,) * len(segment.branches)) for segment in segments]

    def copy(self, source: int, target: int, count: int) -> None:
        pass


class LetterId(NamedTuple):
    """Which dead letter: of a record, or of the bar with that index in its list."""

    partition: int
    offset: int
    bar: int | None
    reason: str


class Said(NamedTuple):
    """An answer of the model of hashes, and how sure it was."""

    answer: str
    gap: float


@dataclass(frozen=True, slots=True)
class SessionFacts:
    token_hash: str
    version: int | None
    bars: int
    swaps: int


class Reference:
    """One engine for all partitions of a topic, each read from offset 0, one record a commit. ``said`` is, by
    session, version and question ("" is the generic entry), what the model of hashes answers there."""

    def __init__(self, topic: str, partitions: int, questions: Sequence[str]) -> None:
        settings = EngineSettings()
        self._builder = TokenBuilder.load(EMBEDDED)
        shape, gate = budget_shape(settings, self._builder), build_gate(self._builder)
        self._engine = Engine(
            settings, self._builder, _NoModel(), new_state(settings, self._builder, shape, LiveGate(gate))
        )
        self._topic = topic
        self._next = dict.fromkeys(range(partitions), 0)
        self._entries = {question: self._builder.query_entry(question) for question in questions}
        self._entries[""] = self._builder.generic_entry
        self.said: dict[tuple[str, int, str], Said] = {}
        self.letters: set[LetterId] = set()
        self.records = 0
        for partition in range(partitions):
            self._engine.assign(Assign(topic, partition, 1, 0, 0))

    def take(self, partition: int, raws: Sequence[RawRecord]) -> None:
        """The next records of a partition."""
        for raw, parsed in zip(raws, parse_records(raws), strict=True):
            self.letters |= {LetterId(partition, raw.offset, letter.bar, letter.reason) for letter in parsed.dead}
            records = () if parsed.record is None else (parsed.record,)
            follows = self._next[partition] - 1
            self._next[partition] = raw.offset + 1
            self.records += 1
            batch = batch_of(records, follows, last=raw.offset, consumed=1, topic=self._topic, partition=partition)
            assert self._engine.ingest.take(batch) is None
            self._engine.run_until_idle()
            for ack in self._engine.ingest.settle():
                self.letters |= {LetterId(ack.partition, r.offset, None, r.reason) for r in ack.rejected}
            if parsed.record is not None:
                self._ask(parsed.record.key)

    def _ask(self, name: str) -> None:
        session = self._engine.sessions[name]
        for question, entry in self._entries.items():
            logits = predict(self._builder, [*session.tokens, *entry])
            word = self._builder.answers[logits.top1][1]
            self.said[name, session.version, question] = Said(word, round(logits.gap, 2))

    def sessions(self) -> dict[str, SessionFacts]:
        return {
            row.id: SessionFacts(row.token_hash, row.data_version, row.bars, row.swaps)
            for row in session_infos(self._engine, SessionsRequest()).sessions
        }
