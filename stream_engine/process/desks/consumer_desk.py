"""The consumers that the engine knows: who is heard of, and what they report."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from stream_engine.config.config import Config
from stream_engine.engine.engine import Engine
from stream_engine.messages import ConsumerHello, ConsumerReport, Welcome
from stream_engine.messages.transport import EngineServer, Peer
from stream_engine.process.desks.partition_desk import PartitionDesk


class ConsumerDesk:
    """Consumers by the identity of their connection. One that is silent for ``engine.stuck_after_s`` is gone."""

    def __init__(self, config: Config, engine: Engine, partitions: PartitionDesk, server: EngineServer) -> None:
        self._stuck_after_s = config.engine.stuck_after_s
        self._topics = config.kafka.source_topics
        self._boot_id = engine.boot_id
        self._credits = engine.settings.credits
        self._partitions = partitions
        self._server = server
        self._heard: dict[bytes, float] = {}
        self._reports: dict[bytes, ConsumerReport] = {}

    def greet(self, peer: Peer, message: ConsumerHello) -> None:
        self._heard[peer.identity] = time.monotonic()
        self._server.send(peer.unsolicited(), Welcome(self._boot_id, self._credits, peer.identity))

    def report(self, peer: Peer, message: ConsumerReport) -> None:
        self._heard[peer.identity] = time.monotonic()
        self._reports[peer.identity] = message
        self.forget_silent()
        sizes = {}
        for topic in self._topics:
            told = [report.partitions[topic] for report in self._reports.values() if topic in report.partitions]
            if told:
                sizes[topic] = max(told)
        self._partitions.learn_sizes(sizes)

    @property
    def known(self) -> Collection[bytes]:
        """Identities, also of some that may be gone by now."""
        return self._heard.keys()

    @property
    def reports(self) -> Mapping[bytes, ConsumerReport]:
        """The newest of each consumer."""
        return self._reports

    def forget_silent(self) -> None:
        """Who is left was heard of lately."""
        now = time.monotonic()
        for identity, heard in list(self._heard.items()):
            if now - heard > self._stuck_after_s:
                del self._heard[identity]
                self._reports.pop(identity, None)
