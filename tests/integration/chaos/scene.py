"""A deployment with everyone around it: the publisher, the clients that watch, and the audit."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from functools import partial
from types import TracebackType

from kafka import KafkaProducer

from tests.integration.chaos.audit import Audit
from tests.integration.chaos.deployment import PATIENCE_S, Deployment
from tests.integration.chaos.market import Made, Market
from tests.integration.chaos.witness import Witness

TREND = "What is the trend?"
QUESTIONS = [TREND, "Which way is it going?", "Direction?"]
CHANGES, COMMITS = "changes", "commits"
"""Standing queries on every session: told when the answer changes, and at every commit."""
SYMBOLS, QUIET = 12, 3


class Scene:
    """For the length of a block; the deployment is ready and every symbol has its history when it begins."""

    def __init__(self, deployment: Deployment, chance: random.Random) -> None:
        self._stack = ExitStack()
        self.deployment = deployment
        self.chance = chance
        self.market = Market(chance, SYMBOLS, deployment.partitions, QUIET)
        self.witness = Witness(deployment.url, QUESTIONS, chance.randrange(10**6))
        self.audit = Audit(deployment, self.witness, QUESTIONS, frozenset({COMMITS}))
        self._producer = KafkaProducer(
            bootstrap_servers=deployment.kafka.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=int(PATIENCE_S * 1000),
        )

    def __enter__(self) -> Scene:
        with self._stack:  # what is open already is closed where the rest fails: a client never ends by itself
            self._stack.callback(self.audit.close)
            self._stack.callback(self._producer.close, timeout=5)
            self._begin()
            self._stack = self._stack.pop_all()
        return self

    def _begin(self) -> None:
        http, until = self.deployment.http, self.deployment.until
        self.deployment.start("engine", "consumer", "api")
        until(lambda: http.get("/health/ready").status_code == 200)
        for query, on in ((CHANGES, "change"), (COMMITS, "commit")):
            body = {"session": "*", "question": TREND, "on": on, "id": query}
            until(partial(self._registers, body))
        for made in self.market.history():
            self.publish(made)
        self.flush()
        self._stack.enter_context(self.witness)

    def _registers(self, body: dict[str, str]) -> bool:
        return self.deployment.http.post("/v1/standing-queries", json=body).status_code == 201

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def publish(self, made: Made) -> None:
        topic = self.deployment.topic
        future = self._producer.send(topic, key=made.key, value=made.value, partition=made.partition)
        if made.newest:
            future.add_callback(lambda at: self.witness.published(made.symbol, at.partition, at.offset))

    def stream(self, most: int = 80) -> None:
        """Some records, at once or at leisure."""
        pause_s = self.chance.choice([0.0, 0.002, 0.01])
        for _ in range(self.chance.randrange(most)):
            self.publish(self.market.record())
            if self.chance.random() < 0.01:
                self.publish(self.market.murmur())
            time.sleep(pause_s * self.chance.random())

    def flush(self) -> None:
        """The broker has everything."""
        self._producer.flush(timeout=PATIENCE_S)

    def settle(self) -> None:
        """Wait until all that was published is applied, and look at everything."""
        for partition in range(self.deployment.partitions):  # so that caught up means: each one moves again
            self.publish(self.market.mark(partition))
        self.flush()
        self.deployment.until(self.audit.caught_up)
        self.audit.check()
        for symbol in self.market.symbols:  # no change was lost: this is what the answers topic said last
            assert self.ask(symbol)["answer"] == self.audit.newest[symbol, CHANGES]["answer"], symbol

    def ask(self, symbol: str) -> dict[str, object]:
        """The answer of the standing query's own distribution, once there is one."""

        def answer() -> dict[str, object] | None:
            body = {"question": TREND, "path": "fast"}
            reply = self.deployment.http.post(f"/v1/sessions/{symbol}/query", json=body)
            return dict(reply.json()) if reply.status_code == 200 else None

        found: dict[str, object] = self.deployment.until(answer)
        return found
