"""Whatever happens to sessions, a valid slot on the board is of the session's live token sequence."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stream_engine.board.meta import board_meta
from stream_engine.board.reader import BoardReader
from stream_engine.board.writer import BoardWriter
from stream_engine.config.risk import RiskSettings
from stream_engine.decision.entry import standing_entry
from stream_engine.decision.gate import ClassGate, FastAnswer, Gate
from stream_engine.decision.reading import Miss
from stream_engine.engine.agentic import TurnRefused
from stream_engine.messages import Answer, Assign, Check, ErrorReply, Query, Record, StandingPut
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.session.token_hash import token_hash
from tests.support.batches import batch_of
from tests.support.played_windows import PlayedWindows

TOPIC = "market.bars"
AFTER_S = 100.0
KEYS = ("A", "B", "C", "D", "E")
AGENTS = ("agent", "other agent")
"""Pushed sessions with turns."""
QUESTIONS = ("What is the trend?", "What is the momentum?")


class RacingReader(threading.Thread):
    """Reads every decision point again and again while the engine works; keeps what was served."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._reader = BoardReader.open(path, 0)
        self._ended = threading.Event()
        self.served: set[tuple[str, str, int, int]] = set()

    def run(self) -> None:
        while not self._ended.is_set():
            for session in (*KEYS, *AGENTS):
                for key in ("", *QUESTIONS):
                    slot = self._reader.read(session, key)
                    if not isinstance(slot, Miss):
                        self.served.add((session, key, slot.evidence.session_version, slot.token_hash))

    def end(self) -> None:
        self._ended.set()
        self.join()


def session_machine(
    make_bench: Callable[..., Any], make_record: Callable[..., Record], builder: TokenBuilder, folder: Path
) -> type[RuleBasedStateMachine]:
    profile = builder.profile
    gate = Gate(
        {profile.generic_class.name: ClassGate(2.0)},
        {token: FastAnswer(*answer) for token, answer in builder.answers.items()},
        0.0,
    )
    boards = iter(range(1_000_000))
    up = next(token for token, answer in builder.answers.items() if answer == ("trend", "up"))

    class Machine(RuleBasedStateMachine):
        @initialize(mode=st.sampled_from(["fused", "idle"]), step_tokens=st.sampled_from([24, 512]))
        def start(self, mode: str, step_tokens: int) -> None:
            path = folder / f"{next(boards)}.board"
            self.board = BoardWriter.create(path, board_meta(profile, gate), 64, 64, 1, 60.0)
            # The fake model's header and full path have nothing to do with each other: a budget that lets them.
            risk = RiskSettings(check_share=1.0, budget=0.9, horizon=10**9)
            options = {
                "preposition": mode,
                "step_tokens": step_tokens,
                "promoted_questions": 1,
                "sleep_after_s": AFTER_S,
            }
            self.bench = make_bench(board=self.board, risk=risk, **options)
            self.engine = self.bench.engine
            self.windows, self.now = PlayedWindows(), 1_000.0
            self.slept: dict[str, tuple[int, list[int]]] = {}
            self.engine.sleeping.clock = lambda: self.now
            self.picked: list[Check] = []
            self.logs: dict[int, tuple[int, ...]] = {}
            self.finish_check = self.engine.verification.finish
            self.engine.verification.finish = self.judge
            self.engine.assign(Assign(TOPIC, 0, 1, 0, 0))
            self.generation, self.offset = 1, 0
            self.index = dict.fromkeys(KEYS, 0)
            self.log: list[Record] = []
            self.history: dict[tuple[str, str, int], set[int]] = defaultdict(set)
            self.versions: dict[str, int] = defaultdict(int)
            self.replies: list[Answer | ErrorReply] = []
            self.asked = 0
            self.check = BoardReader.open(path, 0)
            self.reader = RacingReader(path)
            self.reader.start()

        def judge(self, work: Any, logits: Distribution) -> None:
            """A check compares with the full path of the version that its answer was given on."""
            tokens = self.logs[work.check.token_hash]
            assert logits == self.bench.runner.predict([*tokens, *builder.query_entry(work.check.question)])
            self.finish_check(work, logits)

        def send(self, records: list[Record]) -> None:
            follows = self.offset - 1
            self.offset += len(records)
            self.log += records
            batch = batch_of(records, follows, last=self.offset - 1, generation=self.generation)
            assert self.engine.ingest.take(batch) is None

        def step(self) -> bool:
            """One step, remembering which token sequences it made live."""
            moved = self.engine.step()
            for session in self.engine.sessions.values():
                self.logs[token_hash(session.tokens, builder.generic_entry)] = tuple(session.tokens)
                for entry in (*self.engine.entries.of(session),):
                    if entry.key in session.ready:
                        at = (session.id, entry.key, session.version)
                        self.history[at].add(token_hash(session.tokens, entry.tokens))
            for ack in self.engine.ingest.settle():
                for window in ack.windows:
                    self.windows.write(window)
            return moved

        def asleep(self) -> set[str]:
            return set(self.engine.ingest.partitions.all()[0].dormant)

        @rule(key=st.sampled_from(KEYS), count=st.integers(1, 40))
        def append(self, key: str, count: int) -> None:
            first = self.index[key]
            self.index[key] += count
            self.send([make_record(key, self.offset + n, first + n) for n in range(count)])

        @precondition(lambda self: any(self.index.values()))
        @rule(key=st.sampled_from(KEYS), back=st.integers(1, 70), close=st.sampled_from([99.0, 101.0, 180.0]))
        def correct(self, key: str, back: int, close: float) -> None:
            """Replaces a bar, rolls back to one, comes late, or leaves the unit's range."""
            if self.index[key]:
                self.send([make_record(key, self.offset, self.index[key] - back, close)])

        @rule(steps=st.integers(1, 4))
        def work(self, steps: int) -> None:
            for _ in range(steps):
                self.step()

        @rule(
            key=st.sampled_from((*KEYS, *AGENTS)),
            path=st.sampled_from(["auto", "auto", "full"]),
            question=st.sampled_from(QUESTIONS),
            times=st.integers(1, 4),
        )
        def ask(self, key: str, path: Any, question: str, times: int) -> None:
            """Asked often enough, a question is promoted, and displaces the one that was."""
            for _ in range(times):
                self.asked += 1
                self.engine.queries.ask(Query(key, question, path), self.replies.append)

        @rule()
        def pick(self) -> None:
            """Fast answers of a reader that are to be checked, at once or much later."""
            for key in KEYS:
                slot = self.check.read(key, "")
                if not isinstance(slot, Miss):
                    version, position = slot.evidence.session_version, slot.ready.position
                    self.picked.append(
                        Check(
                            session=key,
                            question=QUESTIONS[0],
                            question_class="trend",
                            session_version=version,
                            position=position,
                            token=up,
                            gap=99.0,
                            token_hash=slot.token_hash,
                        )
                    )

        @rule()
        def hand_over(self) -> None:
            while self.picked:
                self.engine.verification.offer(self.picked.pop())

        @rule(key=st.sampled_from(KEYS), count=st.integers(0, 30))
        def check_late(self, key: str, count: int) -> None:
            """In idle time, when the session has moved on."""
            while self.step():
                pass
            self.pick()
            if count:
                self.append(key, count)
            while self.step():
                pass
            self.hand_over()

        @rule(key=st.sampled_from(AGENTS), length=st.integers(1, 300))
        def turn(self, key: str, length: int) -> None:
            """One that does not fit is refused, and nothing of it is written."""
            before = self.engine.sessions.get(key)
            log = tuple(before.tokens) if before is not None else builder.prefix
            tokens = builder.tool_payload("x" * length)
            try:
                self.engine.append_turn(key, tokens)
            except TurnRefused:
                assert self.bench.shape.headroom(len(log) + len(tokens)) < 0
                tokens = ()
            after = self.engine.sessions.get(key)
            assert (after.tokens if after is not None else [*log]) == [*log, *tokens]

        @rule(key=st.sampled_from(AGENTS))
        def call_tool(self, key: str) -> None:
            """The envelope is decoded in cells that nobody else has."""
            if key in self.engine.sessions:
                self.engine.await_tool(key)

        @precondition(lambda self: any(session.awaiting_tool for session in self.engine.sessions.values()))
        @rule(length=st.integers(0, 200))
        def resume(self, length: int) -> None:
            for session in self.engine.sessions.values():
                if session.awaiting_tool:
                    version, room = session.version, self.bench.shape.headroom(len(session.tokens))
                    tokens = builder.tool_envelope + builder.tool_payload("y" * length)
                    try:
                        self.engine.resume_tool(session.id, "y" * length)
                    except TurnRefused:
                        assert len(tokens) > room
                    assert session.version == version + (len(tokens) <= room)
                    assert session.awaiting_tool is (len(tokens) > room)

        @rule(seconds=st.sampled_from([AFTER_S / 2, 2 * AFTER_S]))
        def grow_quiet(self, seconds: float) -> None:
            self.now += seconds
            self.engine.sleeping.look()

        @rule(heard=st.booleans())
        def write_and_read_windows(self, heard: bool) -> None:
            """What was asked before, or by now as well. A session that wakes is the one that fell asleep."""
            if heard:
                self.windows.hear(self.engine)
            before = {key: (s.version, list(s.tokens)) for key, s in self.engine.sessions.items()}
            self.windows.answer(self.engine)
            for key in self.asleep() & before.keys():
                self.slept[key] = before[key]
            for key in self.engine.sessions.keys() - before.keys():
                woken = self.engine.sessions[key]
                assert (woken.version, woken.tokens) == self.slept.pop(key)

        @rule()
        def sleep_through(self) -> None:
            """Everybody who may."""
            self.settle_down()
            self.now += 2 * AFTER_S
            self.engine.sleeping.look()
            self.write_and_read_windows(True)
            serving = {key for key, session in self.engine.sessions.items() if session.may_sleep}
            assert not serving - {work.query.session for work in self.engine.scheduler.queries}

        def settle_down(self) -> None:
            while self.step() or self.engine.ingest.dormancy.waking:
                self.write_and_read_windows(True)

        @rule(key=st.sampled_from((*KEYS, *AGENTS)))
        def delete(self, key: str) -> None:
            session = self.engine.sessions.get(key)
            if session is not None:
                self.engine.drop_session(session)
            elif self.engine.drop_sleeper(key):
                self.slept.pop(key)

        @rule(pattern=st.sampled_from(["*", "A"]), question=st.sampled_from(QUESTIONS))
        def stand(self, pattern: str, question: str) -> None:
            self.engine.register(StandingPut(pattern, question, id=f"{pattern}{question}"))

        @rule(pattern=st.sampled_from(["*", "A"]), question=st.sampled_from(QUESTIONS))
        def unstand(self, pattern: str, question: str) -> None:
            self.engine.unregister(f"{pattern}{question}")

        @rule(back=st.integers(0, 200))
        def rebuild(self, back: int) -> None:
            """Another consumer life: its records come again from an earlier offset."""
            self.generation += 1
            start = max(0, self.offset - back)
            owned = self.engine.ingest.partitions.all()[0]
            if start > owned.applied:
                start = owned.applied
            self.engine.assign(Assign(TOPIC, 0, self.generation, start, start))
            self.windows.generation = self.generation
            self.windows.asked.clear()
            self.windows.restart(self.engine)
            again = self.log[start:]
            if again:
                batch = batch_of(again, start - 1, last=self.offset - 1, generation=self.generation)
                assert self.engine.ingest.take(batch) is None

        @invariant()
        def valid_slots_are_of_the_live_sequence(self) -> None:
            if not hasattr(self, "engine"):
                return
            self.engine.check_integrity()
            for key in (*KEYS, *AGENTS):
                session = self.engine.sessions.get(key)
                started = (commit := self.engine.scheduler.commits.get(key)) is not None and commit.started
                entries = {"": builder.generic_entry}
                entries |= {q: standing_entry(builder, q, None, False).tokens for q in QUESTIONS}
                for entry_key, tokens in entries.items():
                    slot = self.check.read(key, entry_key)
                    if isinstance(slot, Miss):
                        continue
                    assert session is not None, "a deleted session is served"
                    if started:
                        continue  # between two steps of one commit the earlier state is the live one
                    assert slot.token_hash == token_hash(session.tokens, tokens)
                    assert slot.evidence.session_version == session.version
                    assert slot.ready.gap == self.bench.runner.predict([*session.tokens, *tokens]).gap

        def teardown(self) -> None:
            if not hasattr(self, "engine"):
                return
            self.hand_over()
            self.settle_down()
            assert not self.engine.scheduler.checks
            self.valid_slots_are_of_the_live_sequence()
            assert len(self.replies) == self.asked, "every query gets exactly one reply"
            assert self.engine.ingest.partitions.all()[0].applied == self.offset
            self.reader.end()
            for session, key, version, served in self.reader.served:
                assert served in self.history[session, key, version], "a reader saw a state that never was"
            self.board.close()

    return Machine


def test_sessions_under_any_interleaving(
    make_bench: Callable[..., Any],
    make_record: Callable[..., Record],
    builder: TokenBuilder,
    tmp_path: Path,
) -> None:
    machine = session_machine(make_bench, make_record, builder, tmp_path)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
