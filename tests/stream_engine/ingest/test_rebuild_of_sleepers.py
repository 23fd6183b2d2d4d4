"""Engines killed while sessions fall asleep and wake: the same token logs and answers, no record lost or twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stream_engine.messages import AnswerChanged, Assign, Query, Record, StandingPut
from stream_engine.standing.answer_book import supersedes
from tests.support.batches import batch_of
from tests.support.checks import TREND
from tests.support.played_windows import PlayedWindows

TOPIC = "market.bars"
AFTER_S = 50.0
KEYS = "ABCDEF"
RECORDS = 400


class Life:
    """Of one engine after another, and of what outlives them: the log, the windows topic, what is committed and
    what was told. ``fates`` counts what became of each record, once its acknowledgement was heard of."""

    def __init__(self, records: list[Record], make_bench: Callable[..., Any]) -> None:
        self.records = records
        self.windows = PlayedWindows(generation=0)
        self.floor, self.committed, self.at = 0, 0, 0
        self.fates: Counter[str] = Counter()
        self.told: dict[tuple[str, str], AnswerChanged] = {}
        self.now = 1_000.0
        self._make_bench = make_bench

    def begin(self, sleep_after_s: float) -> None:
        """SIGKILL: all of the engine's memory is gone."""
        self.bench = self._make_bench(sessions=4, quiet_records=60, sleep_after_s=sleep_after_s)
        self.engine = self.bench.engine
        self.engine.sleeping.clock = lambda: self.now
        self.engine.register(StandingPut("*", TREND, id="q"))
        self.engine.standing.restore(self.told.values())
        self.assign()

    def assign(self) -> None:
        """A first one, or the consumer starts over. What was asked of the one before is lost."""
        self.windows.generation += 1
        self.windows.hear(self.engine)
        self.windows.asked.clear()
        self.at = self.floor
        start = Assign(TOPIC, 0, self.windows.generation, self.floor, self.committed)
        assert self.engine.assign(start)
        self.windows.restart(self.engine)
        self.feed(self.committed - self.floor)

    def feed(self, count: int) -> None:
        taken = self.records[self.at : self.at + count]
        if taken:
            last = self.at + len(taken) - 1
            batch = batch_of(taken, self.at - 1, last=last, generation=self.windows.generation)
            assert self.engine.ingest.take(batch) is None
            self.at = last + 1
        self.work()

    def work(self) -> None:
        self.engine.run_until_idle()
        self.engine.check_integrity()
        for event in self.bench.events:
            if isinstance(event, AnswerChanged):
                self._hear(event)
        self.bench.events.clear()
        for ack in self.engine.ingest.settle():
            for window in ack.windows:
                self.windows.write(window)
            self.floor, self.committed = ack.floor, max(self.committed, ack.last + 1)
            self.fates.update(applied=ack.applied, duplicates=ack.duplicates, late=ack.late)

    def _hear(self, event: AnswerChanged) -> None:
        before = self.told.get((event.session, event.query))
        if before is not None and not supersedes(event, before):
            return  # of a replay that has begun again: its writer knows by the topic that it is there
        assert event.initial is (before is None), (before, event)
        assert event.previous == (before.answer if before is not None else None), (before, event)
        assert before is None or event.answer != before.answer, (before, event)
        self.told[event.session, event.query] = event

    def answer(self) -> None:
        self.windows.answer(self.engine)
        self.work()

    def end(self) -> None:
        while self.at < len(self.records) or self.committed < len(self.records):
            self.feed(len(self.records))
            self.answer()
        for key in KEYS:
            replies: list[Any] = []
            self.engine.queries.ask(Query(key, TREND, "full"), replies.append)
            for _ in range(3):
                self.answer()
            assert len(replies) == 1


@pytest.mark.parametrize("seed", range(10))
def test_token_logs_and_answers_equal_those_of_a_life_without_sleep(
    seed: int, make_bench: Callable[..., Any], make_record: Callable[..., Record]
) -> None:
    chance = random.Random(seed)
    index = dict.fromkeys(KEYS, 0)
    records = []
    for offset in range(RECORDS):
        key = chance.choice("AAAABBCDEF")
        at = index[key]
        if at > 5 and chance.random() < 0.05:
            at -= chance.randint(1, 5)  # a correction
        else:
            index[key] += 1
        records.append(make_record(key, offset, at, 100 + chance.gauss(0, 1)))
    straight = Life(records, make_bench)
    straight.begin(sleep_after_s=0.0)
    straight.end()

    here = Life(records, make_bench)
    here.begin(AFTER_S)
    kills = slept = woken = 0
    while here.at < RECORDS:
        event = chance.random()
        if event < 0.05:
            kills += 1
            slept += int(here.engine.counters.sessions_slept_total)
            woken += int(here.engine.counters.sessions_woken_total)
            here.begin(chance.choice([0.0, AFTER_S, AFTER_S]))  # a member with another setting
        elif event < 0.1:
            here.assign()
        elif event < 0.4:
            here.now += chance.choice([AFTER_S / 3, 2 * AFTER_S])
            here.work()
        elif event < 0.7:
            here.answer()
        else:
            here.feed(chance.randint(1, 9))
    here.end()
    assert kills > 0
    assert slept > 0
    assert woken > 0
    for name, session in straight.engine.sessions.items():
        again = here.engine.sessions[name]
        assert again.tokens == session.tokens
        facts = [(s.version, s.offset, s.timestamp_ms, s.swaps, s.answer_state) for s in (again, session)]
        assert facts[0] == facts[1]
        assert not again.incomplete
    newest = {key: event.answer for key, event in straight.told.items()}
    assert {key: event.answer for key, event in here.told.items()} == newest
    assert straight.fates == {"applied": RECORDS, "duplicates": 0, "late": 0}
    assert here.fates.total() == RECORDS, "each record is settled once"
    assert here.fates["late"] == 0
