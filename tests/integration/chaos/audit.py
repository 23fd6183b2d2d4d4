"""The checks after each round: the service against a run without interruption, and the topics it wrote."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.integration.chaos.deployment import Deployment, TopicReader, raw
from tests.integration.chaos.reference import LetterId, Reference, SessionFacts
from tests.integration.chaos.witness import Witness

REPORTED_WITHIN_S = 30.0


class Audit:
    """Of one deployment, from its first record on. Its standing queries are all of sessions ``*``;
    ``every_commit`` are those with ``on: commit``. ``questions`` is what ``witness`` asks."""

    def __init__(
        self,
        deployment: Deployment,
        witness: Witness,
        questions: Sequence[str],
        every_commit: frozenset[str] = frozenset(),
    ) -> None:
        kafka = deployment.kafka
        self._deployment = deployment
        self._witness = witness
        self._every_commit = every_commit
        self.log = TopicReader(kafka.bootstrap_servers, kafka.bars_topic)
        self._answers = TopicReader(kafka.bootstrap_servers, kafka.answers_topic)
        self._letters = TopicReader(kafka.bootstrap_servers, kafka.dead_letter_topic)
        self.reference = Reference(kafka.bars_topic, deployment.partitions, questions)
        self.newest: dict[tuple[str, str], dict[str, Any]] = {}
        self.letters: Counter[LetterId] = Counter()
        self.answers = 0

    def caught_up(self) -> bool:
        return self._deployment.caught_up(self.log.ends())

    def check(self) -> None:
        """Once everything is applied. Raises AssertionError with what differs."""
        by_partition: dict[int, list[Any]] = {}
        for record in self.log.read():
            by_partition.setdefault(record.partition, []).append(raw(record))
        for partition, records in by_partition.items():
            self.reference.take(partition, records)
        self._check_sessions()
        self._check_conservation()
        self._check_letters()
        self._check_answers()
        self._check_witness()

    def _check_sessions(self) -> None:
        found = {
            name: SessionFacts(row["token_hash"], row["data_version"], row["bars"], row["swaps"])
            for name, row in self._deployment.sessions().items()
        }
        expected = self.reference.sessions()
        differing = {name: (found.get(name), fact) for name, fact in expected.items() if found.get(name) != fact}
        assert not differing, f"not what an uninterrupted run makes of the log: {differing}"
        assert found.keys() == expected.keys()

    def _check_conservation(self) -> None:
        """Of the present consumers, per partition: consumed = applied + dead-lettered + duplicates + late.

        Consumers report once a second: the figures are waited for, and have to come out even."""
        deadline = time.monotonic() + REPORTED_WITHIN_S
        found = self._record_counts()
        while time.monotonic() < deadline and (
            found["consumed"] != found["settled"] or len(+found["consumed"]) < self._deployment.partitions
        ):
            time.sleep(0.2)
            found = self._record_counts()
        assert found["consumed"] == found["settled"], found
        assert len(+found["consumed"]) == self._deployment.partitions

    def _record_counts(self) -> dict[str, Counter[str]]:
        """Records by partition: consumed, and settled in any way."""
        found: dict[str, Counter[str]] = {"consumed": Counter(), "settled": Counter()}
        for name, labels, value in self._deployment.metrics():
            kind = name.removeprefix("stream_engine_consumer_records_").removesuffix("_total")
            if kind in found and labels["topic"] == self._deployment.topic:
                found[kind][labels["partition"]] += int(value)
        return found

    def _check_letters(self) -> None:
        for record in self._letters.read():
            named = dict(record.headers)
            bar = int(named["bar"]) if "bar" in named else None
            self.letters[
                LetterId(int(named["partition"]), int(named["offset"]), bar, named["reason"].decode())
            ] += 1
        lost, made_up = self.reference.letters - set(self.letters), set(self.letters) - self.reference.letters
        assert not lost, f"no dead letters of {lost}"
        assert not made_up, f"dead letters of {made_up}"

    def _check_answers(self) -> None:
        """Every change once, in order: versions grow, each answer names the one before it."""
        for record in self._answers.read():
            self.answers += 1
            answer = json.loads(record.value)
            key = answer["session"], answer["query"]
            assert record.key == "|".join(key).encode()
            before = self.newest.get(key)
            assert answer["initial"] is (before is None), (before, answer)
            assert answer["previous"] == (before["answer"] if before else None), (before, answer)
            if before is not None:
                assert answer["session_version"] > before["session_version"], (before, answer)
                assert answer["answer"] != before["answer"] or key[1] in self._every_commit, (before, answer)
            assert answer["offset"] == answer["session_version"] - 1
            said = self.reference.said[answer["session"], answer["session_version"], answer["question"]]
            assert (answer["answer"], round(answer["gap"], 2)) == said, answer
            self.newest[key] = answer

    def _check_witness(self) -> None:
        """Whatever was answered in the meantime is what the model says on the data of that very version."""
        assert not self._witness.violations, self._witness.violations
        while not self._witness.answers.empty():
            answer = self._witness.answers.get()
            at = answer["session"], answer["session_version"]
            said = {self.reference.said.get((*at, question)) for question in (answer["question"], "")}
            assert (answer["answer"], round(answer["gap"], 2)) in said, answer

    def close(self) -> None:
        for reader in (self.log, self._answers, self._letters):
            reader.close()
