"""What consumers say about their partitions: assigned, refilled, fed, given up; and what their owners are told."""

from __future__ import annotations

import logging

from stream_engine.engine.engine import Engine
from stream_engine.messages import (
    Ack,
    Asleep,
    Assign,
    Batch,
    Evaluations,
    PutToSleep,
    Refused,
    Restore,
    Revoke,
    Wake,
)
from stream_engine.messages.bounds import MAX_TEXT
from stream_engine.messages.transport import EngineServer, Peer
from stream_engine.process.desks.standing_desk import StandingDesk
from stream_engine.process.intake import OfPartition, PartitionHead
from stream_engine.session.session import Source

log = logging.getLogger(__name__)


class PartitionDesk:
    """Knows the consumer that owns each partition: acknowledgements and evaluations go there."""

    def __init__(self, engine: Engine, standing: StandingDesk, server: EngineServer) -> None:
        self._boot_id = engine.boot_id
        self._engine = engine
        self._ingest = engine.ingest
        self._standing = standing
        self._server = server
        self._owners: dict[Source, Peer] = {}

    def assign(self, peer: Peer, message: Assign) -> None:
        if not self._engine.assign(message):
            return  # the newer owner keeps its acknowledgements; this one's batches are refused
        source = Source(message.topic, message.partition)
        self._owners[source] = peer.unsolicited()
        self._standing.assigned(source)
        log.info(
            "partition %s/%d assigned: replay from %d, live from %d",
            message.topic,
            message.partition,
            message.start,
            message.live_from,
        )

    def restore(self, peer: Peer, message: Restore) -> None:
        self._ingest.restore(message)
        log.info("%d windows restored of %s/%d", len(message.windows), message.topic, message.partition)

    def asleep(self, peer: Peer, message: Asleep) -> None:
        self._engine.asleep(message)

    def take(self, peer: Peer, message: Batch) -> None:
        refused = self._ingest.take(message)
        if refused is not None:
            self._server.send(peer.unsolicited(), refused)

    def revoke(self, peer: Peer, message: Revoke) -> None:
        self._engine.revoke(message)
        source = Source(message.topic, message.partition)
        if self._ingest.partitions.get(source) is None:
            self._standing.given_up(source)
        log.info("partition %s/%d revoked", message.topic, message.partition)

    def learn_sizes(self, sizes: dict[str, int]) -> None:
        """How many partitions the topics have. Those behind that were assigned by nobody who reads them: they
        would never be live."""
        table = self._ingest.partitions
        table.sizes.update(sizes)
        for owned in table.all():
            source = owned.source
            if source.partition >= table.sizes.get(source.topic, source.partition + 1):
                self._server.skipped.note("unknown_partition", f"{source.topic}/{source.partition} is let go")
                self.let_go(source)

    def let_go(self, source: Source) -> None:
        """The partition starts again from the log, with its next assignment."""
        owned = self._ingest.partitions.get(source)
        if owned is not None:
            self._engine.revoke(Revoke(source.topic, source.partition, owned.generation))
            self._standing.given_up(source)

    def refuse(self, peer: Peer, message: OfPartition | PartitionHead, reason: str) -> None:
        """Nothing of the message is applied; a consumer would wait for ever for what becomes of it."""
        refused = Refused(
            boot_id=self._boot_id,
            topic=message.topic,
            partition=message.partition,
            generation=message.generation,
            expected_follows=None,
            reason=reason[:MAX_TEXT],
        )
        self._server.send(peer.unsolicited(), refused)

    def tell_owner(self, message: Ack | Evaluations | PutToSleep | Wake) -> None:
        """To the consumer that the partition was assigned by."""
        owner = self._owners.get(Source(message.topic, message.partition))
        if owner is not None:
            self._server.send(owner, message)
