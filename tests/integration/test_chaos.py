"""Processes killed at random moments of a replay: nothing lost, nothing twice, nothing back, every restart dull.

``make chaos`` runs 200 rounds and prints the report; STREAM_ENGINE_CHAOS_ROUNDS and STREAM_ENGINE_CHAOS_SEED
choose others. The seed decides what is published and who is killed; when that hits is up to the machine.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kafka import KafkaProducer

from stream_engine.localkafka import TemporaryKafka
from tests.integration.chaos.audit import Audit
from tests.integration.chaos.deployment import Deployment
from tests.integration.chaos.market import Made, Market
from tests.integration.chaos.witness import Witness

ROUNDS = int(os.environ.get("STREAM_ENGINE_CHAOS_ROUNDS", "20"))
SEED = int(os.environ.get("STREAM_ENGINE_CHAOS_SEED") or random.randrange(10**6))
TREND = "What is the trend?"
QUESTIONS = [TREND, "Which way is it going?", "Direction?"]
CHANGES, COMMITS = "changes", "commits"
PROCESSES = ("engine", "consumer", "api")
# Twenty rounds' worth; a broker takes longest to come back.
VICTIMS = 6 * ["engine"] + 5 * ["consumer"] + 3 * ["api"] + 2 * ["broker"] + 2 * ["engine consumer"] + 2 * [
    "engine consumer api"
]


class Chaos:
    """One service under attack, with its publisher."""

    def __init__(self, deployment: Deployment, broker: TemporaryKafka, chance: random.Random) -> None:
        self.deployment = deployment
        self.broker = broker
        self.chance = chance
        self.market = Market(chance, symbols=12, partitions=deployment.partitions, quiet=3)
        self.witness = Witness(deployment.url, QUESTIONS, chance.randrange(10**6))
        self.audit = Audit(deployment, self.witness, QUESTIONS, frozenset({COMMITS}))
        self.recoveries: dict[str, list[float]] = {}
        self._producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=True, delivery_timeout_ms=120_000
        )

    def publish(self, made: Made) -> None:
        topic = self.deployment.topic
        future = self._producer.send(topic, key=made.key, value=made.value, partition=made.partition)
        if made.newest:
            future.add_callback(lambda at: self.witness.published(made.symbol, at.partition, at.offset))

    def stream(self) -> None:
        """Some records, at once or at leisure."""
        pause_s = self.chance.choice([0.0, 0.002, 0.01])
        for _ in range(self.chance.randrange(80)):
            self.publish(self.market.record())
            if self.chance.random() < 0.01:
                self.publish(self.market.murmur())
            time.sleep(pause_s * self.chance.random())

    def round(self, victim: str) -> None:
        """Publish, kill in the midst of it, publish on, wait until all is well, and look at everything."""
        chance = self.chance
        self.stream()
        names = victim.split()
        if victim == "broker":
            self.broker.kill9()
        else:
            self.deployment.kill(*names)
        killed = time.monotonic()
        self.stream()
        if victim == "broker":
            self.broker.restart()
        else:
            chance.shuffle(names)
            self.deployment.start(*names)
        self.stream()
        for partition in range(self.deployment.partitions):  # so that caught up means: came back
            self.publish(self.market.mark(partition))
        self._producer.flush(timeout=120)
        self.settle()
        self.recoveries.setdefault(victim, []).append(time.monotonic() - killed)

    def settle(self) -> None:
        self.deployment.until(self.audit.caught_up)
        self.audit.check()
        self._check_answers_now()

    def _check_answers_now(self) -> None:
        """What is answered now is what the answers topic said last: no change was lost."""
        for symbol in self.market.symbols:
            reply = self.deployment.until(
                lambda symbol=symbol: (
                    found := self.deployment.http.post(
                        f"/v1/sessions/{symbol}/query", json={"question": TREND, "path": "fast"}
                    )
                ).status_code
                == 200
                and found
            )
            assert reply.json()["answer"] == self.audit.newest[symbol, CHANGES]["answer"]

    def report(self) -> str:
        times = [seconds for each in self.recoveries.values() for seconds in each]
        rows = [f"{len(times)} rounds, seed {SEED}"]
        rows += [
            f"  {victim:22} {len(each):4} rounds   recovered in p50 {statistics.median(each):5.1f} s, "
            f"max {max(each):5.1f} s"
            for victim, each in sorted(self.recoveries.items())
        ]
        letters = self.audit.letters
        reasons = Counter(letter.reason for letter in letters)
        replays = re.findall(r"assigned: replay from (\d+), live from (\d+)", self.deployment.log("engine"))
        replayed = sum(int(live) - int(start) for start, live in replays)
        rows += [
            f"  records {self.audit.reference.records}, answers on their topic {self.audit.answers}, "
            f"questions {dict(self.witness.statuses)}, unreachable {self.witness.unreachable}",
            f"  dead letters {len(letters)}, again {sum(letters.values()) - len(letters)}: {dict(reasons)}",
            f"  partitions assigned {len(replays)} times, records replayed in that {replayed}",
        ]
        return "\n".join(rows)

    def close(self) -> None:
        self._producer.close(timeout=5)
        self.audit.close()
        gc.collect()  # while the sockets' warning is ignored


@pytest.fixture
def quiet_clients() -> Iterator[None]:
    """Connections that are refused are logged with their exception, which keeps a socket alive as long as pytest
    keeps the log."""
    logger = logging.getLogger("kafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)


@pytest.fixture
def chaos(quiet_clients: None) -> Iterator[Chaos]:
    with ExitStack() as stack:
        broker = stack.enter_context(TemporaryKafka())
        deployment = stack.enter_context(
            Deployment(
                broker.bootstrap,
                kafka_session_timeout_ms="6000",
                kafka_poll_records="20",
                engine_quiet_records="100",
                engine_step_tokens="96",
                engine_stuck_after_s="3",
            )
        )
        one = Chaos(deployment, broker, random.Random(SEED))
        stack.callback(one.close)
        deployment.start(*PROCESSES)
        deployment.until(lambda: deployment.http.get("/health/ready").status_code == 200)
        stack.enter_context(one.witness)
        yield one


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # kafka-python's, where a broker is away
def test_a_service_that_is_killed_again_and_again_is_as_if_it_never_was(chaos: Chaos) -> None:
    print(f"chaos: seed {SEED}, {ROUNDS} rounds", flush=True)
    for query, on in ((CHANGES, "change"), (COMMITS, "commit")):
        body = {"session": "*", "question": TREND, "on": on, "id": query}
        chaos.deployment.until(
            lambda body=body: chaos.deployment.http.post("/v1/standing-queries", json=body).status_code == 201
        )
    for made in chaos.market.history():
        chaos.publish(made)
    chaos.settle()
    victims: list[str] = []
    for number in range(ROUNDS):
        if not victims:
            victims = chaos.chance.sample(VICTIMS, len(VICTIMS))
        victim = victims.pop()
        chaos.round(victim)
        print(f"round {number + 1}: {victim} came back in {chaos.recoveries[victim][-1]:.1f} s", flush=True)
    print(chaos.report(), flush=True)
