"""The Kafka client behind a small interface: poll, events, offsets. What kafka-python surprises with is kept here.

One thread calls all methods. The rebalance listener runs on the client's own network thread, so it only pauses,
starts a commit and leaves an event; seeks happen on the poll thread, later.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RetriableError,
    TopicAuthorizationFailedError,
)
from kafka.structs import MemberState

from consumers.kafka.assignor import TopicSpreadAssignor
from consumers.kafka.careful import CarefulConsumer
from consumers.kafka.client import client_options
from consumers.kafka.offsets import CommitPoint
from consumers.kafka.salvage import Unread, described
from consumers.wire.reasons import RawRecord
from stream_engine.config.kafka import KafkaSettings
from stream_engine.config.rules import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOKUP_TIMEOUT_MS = 5_000
ENDS_TIMEOUT_MS = 500
RETRY_PAUSE_S = 0.2
OTHER_VERSION_PAUSE_S = 2.0
_FORBIDDEN = (TopicAuthorizationFailedError, GroupAuthorizationFailedError)
"""Rights are given and taken while we run: what the log holds is read once they are there."""
JOINING_POLL_MS = 500
SILENT_AFTER_S = 10.0
"""Three times the heartbeats' interval, which a reachable group coordinator answers each."""
RECONNECT_BACKOFF_MS = 2_000
"""Longest pause between attempts to reach a broker that is away; the client's own is half a minute."""


class SourcePartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class AssignmentChange(Enum):
    """What happened to a partition. POSITION_LOST: it is still ours, but the log no longer holds our position."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    POSITION_LOST = "position lost"


@dataclass(frozen=True, slots=True)
class SourceEvent:
    change: AssignmentChange
    partition: SourcePartition


class InstanceIdTaken(ConfigError):
    """Another consumer of the group joined under our ``kafka.group_instance_id``: Kafka fences the older one."""

    def __init__(self, group_id: str, instance_id: str | None) -> None:
        super().__init__(
            f"kafka.group_instance_id = {instance_id!r}: another consumer of group {group_id!r} has joined under "
            "this id and taken this one's place; give each consumer an id of its own"
        )


class SourceUnavailable(RuntimeError):
    """The broker did not answer a lookup in time; the caller tries again later."""


class KafkaSource:
    """One member of the consumer group, for the topics given."""

    def __init__(self, settings: KafkaSettings, topics: Iterable[str]) -> None:
        self._member = settings.group_id, settings.group_instance_id
        self._assignor = TopicSpreadAssignor()
        self._heard = time.monotonic()
        self._silent_from: float | None = None
        self._session_timeout_s = settings.session_timeout_ms / 1000
        self._other_version = False
        self._forbidden = ""
        self._events: queue.SimpleQueue[SourceEvent] = queue.SimpleQueue()
        self._commits: queue.SimpleQueue[dict[SourcePartition, CommitPoint] | Exception] = queue.SimpleQueue()
        self._on_revoke: Mapping[SourcePartition, CommitPoint] = {}
        self._asked_ends: dict[SourcePartition, int] = {}
        self._consumer = CarefulConsumer(
            waits_for_codec=True,
            **client_options(settings),
            group_id=settings.group_id,
            group_instance_id=settings.group_instance_id,
            client_id=f"{settings.group_id}-consumer",
            enable_auto_commit=False,
            # A position outside the log raises: a jump is the configured, logged choice of plan_rebuild.
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_poll_records=settings.poll_records,
            reconnect_backoff_max_ms=RECONNECT_BACKOFF_MS,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=min(3_000, settings.session_timeout_ms // 3),
            metadata_max_age_ms=30_000,  # partitions that are added are found within half a minute
            # Kept partitions stay live across a rebalance: re-reading one costs a rebuild of its sessions.
            partition_assignment_strategy=[self._assignor],
        )
        self._consumer.subscribe(list(topics), listener=_Listener(self))

    def poll(self, timeout_ms: int, max_records: int) -> dict[SourcePartition, list[RawRecord]]:
        """Records per partition, in offset order; what cannot be read has a ``fault``, or stops its partition: see
        ``stopped``. Raises InstanceIdTaken, and KafkaError only where trying again cannot help."""
        if self._consumer.group_metadata().state != MemberState.STABLE:
            # A join that completes between two polls is thrown away and begun again: short polls never get in.
            timeout_ms = max(timeout_ms, JOINING_POLL_MS)
        try:
            polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
        except NoOffsetForPartitionError:
            return {}  # assigned a moment ago: the ASSIGNED event is queued, and leads to a seek
        except OffsetOutOfRangeError as error:
            self._position_lost(error.args[0])
            return {}
        except LogTruncationError as error:
            self._position_lost(error.divergent_offsets)
            return {}
        except FencedInstanceIdError:
            raise InstanceIdTaken(*self._member) from None
        except InconsistentGroupProtocolError:
            self._await_other_version()
            return {}
        except _FORBIDDEN as error:
            self._heard = time.monotonic()  # a broker that refuses answers
            if str(error) != self._forbidden:
                self._forbidden = str(error)
                advice = "give its user READ on the topics and on the group; trying again until then"
                log.error("Kafka does not let group %s read: %s: %s", self._member[0], described(error), advice)
            time.sleep(OTHER_VERSION_PAUSE_S)
            return {}
        except RetriableError as error:
            log.warning("polling failed, trying again: %s: %s", type(error).__name__, error)
            time.sleep(RETRY_PAUSE_S)
            return {}
        if polled:
            self._heard, self._forbidden = time.monotonic(), ""
        return {SourcePartition(*tp): [raw_record(record) for record in records] for tp, records in polled.items()}

    def _await_other_version(self) -> None:
        """Its members know no assignor of ours, so that the group refuses us as long as one of them is in it."""
        self._heard = time.monotonic()
        if not self._other_version:
            log.warning("another version of the consumer is in group %s; waiting for it to leave", self._member[0])
        self._other_version = True
        time.sleep(OTHER_VERSION_PAUSE_S)

    def silent_since(self) -> float | None:
        """Since when, on the monotonic clock, no broker has answered us; None while they do.

        kafka-python says nothing of a broker that is away, and goes on trying. When it last received something is
        told by its heartbeats only, which it keeps to itself. It sends none while it joins, and the group may wait
        for a member that is gone until that one's session ends."""
        heartbeat: float = self._consumer._coordinator.heartbeat.last_receive
        heard = max(self._heard, heartbeat)
        joined = self._consumer.group_metadata().state == MemberState.STABLE
        patience = SILENT_AFTER_S if joined else SILENT_AFTER_S + self._session_timeout_s
        # Said once, it stays: the membership also ends because of the silence.
        silent = heard == self._silent_from or time.monotonic() - heard > patience
        self._silent_from = heard if silent else None
        return self._silent_from

    def events(self) -> list[SourceEvent]:
        """Assignments and revocations since the last call, in order."""
        events = _drain(self._events)
        for event in events:
            if event.change is AssignmentChange.ASSIGNED:
                # Paused until its start is decided. Without a position the client would ask for the committed
                # offset in each poll, and end it at once.
                self.seek(event.partition, 0)
        return events

    def committed(self, partition: SourcePartition) -> CommitPoint | None:
        """The group's committed offset and floor. Raises SourceUnavailable."""
        try:
            found = self._consumer.committed(
                TopicPartition(*partition), metadata=True, timeout_ms=LOOKUP_TIMEOUT_MS
            )
        except (RetriableError, *_FORBIDDEN) as error:
            raise SourceUnavailable(f"committed offset of {partition}: {type(error).__name__}: {error}") from error
        return None if found is None else CommitPoint.read(found.offset, found.metadata)

    def bounds(self, partition: SourcePartition) -> tuple[int, int]:
        """First offset in the log, and the one after the last. Raises SourceUnavailable."""
        tp = TopicPartition(*partition)
        try:
            beginning = self._consumer.beginning_offsets([tp], timeout_ms=LOOKUP_TIMEOUT_MS)[tp]
            return beginning, self._consumer.end_offsets([tp], timeout_ms=LOOKUP_TIMEOUT_MS)[tp]
        except (RetriableError, *_FORBIDDEN) as error:
            raise SourceUnavailable(f"offsets of {partition}: {type(error).__name__}: {error}") from error

    def seek(self, partition: SourcePartition, offset: int) -> bool:
        """Set the next offset to read; what was fetched before is discarded. False where it is no longer ours."""
        self._asked_ends.pop(partition, None)  # the log may have been made anew
        self._consumer.stops.pop(partition, None)
        try:
            self._consumer.seek(TopicPartition(*partition), offset)
        except (ValueError, KeyError):
            return False
        return True

    def flow(self, partitions: set[SourcePartition]) -> None:
        """Exactly these partitions deliver records, apart from those that are stopped and not to be tried yet; all
        others of the assignment are paused."""
        partitions = partitions - self._consumer.held_back()
        assigned = {SourcePartition(*tp) for tp in self._consumer.assignment()}
        paused = {SourcePartition(*tp) for tp in self._consumer.paused()}
        for partition in assigned:
            wanted = partition in partitions
            if wanted == (partition in paused):
                self._set_paused(partition, not wanted)

    def position(self, partition: SourcePartition) -> int | None:
        """The next offset to be read; None where it is not known now. It passes transaction markers, which are
        never delivered."""
        try:
            position: int | None = self._consumer.position(TopicPartition(*partition), timeout_ms=0)
        except LogTruncationError as error:
            self._position_lost(error.divergent_offsets)
        except (KafkaError, KeyError):  # it is being taken away, or another one has no position yet
            pass
        else:
            return position
        return None

    def ends(self, partitions: Iterable[SourcePartition]) -> dict[SourcePartition, int]:
        """The offset after the last in the log, as of the newest fetch; without those not known yet.

        What is paused is not fetched, and the log may grow for long meanwhile: then the broker is asked. Otherwise
        it is not: its answer would come behind that of a fetch which waits for records."""
        newest = {p: end for p in partitions if (end := self._highwater(p)) is not None}
        paused = {SourcePartition(*tp) for tp in self._consumer.paused()}
        if newest and paused.issuperset(newest):
            self._ask_for_ends(newest)
        # A fetch that is looked at later may be older than the answer.
        return {partition: max(end, self._asked_ends.get(partition, end)) for partition, end in newest.items()}

    def _ask_for_ends(self, newest: Mapping[SourcePartition, int]) -> None:
        try:
            found = self._consumer.end_offsets([TopicPartition(*p) for p in newest], timeout_ms=ENDS_TIMEOUT_MS)
        except KafkaError as error:
            log.debug("the ends of the log are not known at the moment: %s: %s", type(error).__name__, error)
            return
        self._asked_ends = {partition: found[TopicPartition(*partition)] for partition in newest}

    def _highwater(self, partition: SourcePartition) -> int | None:
        try:
            highwater: int | None = self._consumer.highwater(TopicPartition(*partition))
        except (KafkaError, KeyError):  # it is being taken away
            return None
        return highwater

    def stopped(self) -> dict[SourcePartition, str]:
        """Partitions of which nothing comes, because the next record cannot be read: where they stand, and why."""
        stops = {SourcePartition(*tp): str(stop) for tp, stop in list(self._consumer.stops.items())}
        assigned = self._consumer.assignment()
        return {partition: stop for partition, stop in stops.items() if partition in assigned}

    def sizes(self) -> dict[str, int]:
        """Partitions that each of our topics has, where that is known."""
        topics = self._consumer.subscription() or ()
        found = {topic: self._consumer.partitions_for_topic(topic) for topic in topics}
        return {topic: len(partitions) for topic, partitions in found.items() if partitions}

    def commit(self, points: Mapping[SourcePartition, CommitPoint]) -> None:
        """Start a commit; its outcome comes from ``commits``. Raises InstanceIdTaken."""
        try:
            self._consumer.commit_async(_to_kafka(points), callback=self._committed)
        except FencedInstanceIdError:
            raise InstanceIdTaken(*self._member) from None

    def commits(self) -> list[dict[SourcePartition, CommitPoint] | Exception]:
        """Outcomes of commits since the last call: what was committed, or the error."""
        return _drain(self._commits)

    def commit_now(self, points: Mapping[SourcePartition, CommitPoint], timeout_ms: int) -> None:
        """Commit and wait. Raises KafkaError."""
        self._consumer.commit(_to_kafka(points), timeout_ms=timeout_ms)

    def commit_on_revoke(self, points: Mapping[SourcePartition, CommitPoint]) -> None:
        """What the listener commits for partitions that are taken away, while this member still may."""
        self._on_revoke = points

    def close(self, timeout_s: float) -> None:
        """Leave the group. The client's close can hang on a dead broker: it is left behind after ``timeout_s``."""
        self._on_revoke = {}

        def close() -> None:
            try:
                self._consumer.close(autocommit=False, timeout_ms=int(timeout_s * 1000))
            except Exception as error:  # the process ends; the group notices by the session timeout
                log.warning("the Kafka consumer did not close cleanly: %s: %s", type(error).__name__, error)

        closing = threading.Thread(target=close, name="kafka-close", daemon=True)
        closing.start()
        closing.join(timeout_s + 1.0)
        if closing.is_alive():
            log.warning("the Kafka consumer did not close within %.0f s: left behind", timeout_s)

    def _assigned(self, partitions: Iterable[Any]) -> None:
        self._heard = time.monotonic()
        self._other_version = False
        for tp in partitions:
            self._set_paused(SourcePartition(*tp), True)
            self._events.put(SourceEvent(AssignmentChange.ASSIGNED, SourcePartition(*tp)))

    def _revoked(self, partitions: Iterable[Any], may_commit: bool) -> None:
        taken = [SourcePartition(*tp) for tp in partitions]
        points = {p: point for p, point in self._on_revoke.items() if p in taken}
        if points and may_commit:
            # Sent before this member rejoins, so before the next owner may commit; a later one could go back.
            try:
                self.commit(points)
            except (KafkaError, InstanceIdTaken) as error:
                log.warning("no commit at the revocation of %s: %s", ", ".join(map(str, points)), error)
        for partition in taken:
            self._events.put(SourceEvent(AssignmentChange.REVOKED, partition))

    def _position_lost(self, positions: Mapping[Any, Any]) -> None:
        for tp in positions:
            partition = SourcePartition(*tp)
            self._set_paused(partition, True)
            self._events.put(SourceEvent(AssignmentChange.POSITION_LOST, partition))

    def _set_paused(self, partition: SourcePartition, paused: bool) -> None:
        change = self._consumer.pause if paused else self._consumer.resume
        try:
            change(TopicPartition(*partition))
        except KeyError:
            log.debug("%s is no longer assigned", partition)

    def _committed(self, offsets: Mapping[Any, Any], response: Any) -> None:
        if isinstance(response, Exception):
            self._commits.put(response)
        else:
            self._heard = time.monotonic()
            points = {SourcePartition(*tp): CommitPoint.read(o.offset, o.metadata) for tp, o in offsets.items()}
            self._commits.put(points)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no type marker
    def __init__(self, source: KafkaSource) -> None:
        self._source = source

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._source._assigned(assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._source._revoked(revoked, may_commit=True)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._source._assignor.forget()
        self._source._revoked(lost, may_commit=False)


def raw_record(record: Any) -> RawRecord:
    """A polled record, as kafka-python has it."""
    value, fault = record.value, None
    if isinstance(value, Unread):
        fault, value = value.fault, bytes(value)
    return RawRecord(record.topic, record.partition, record.offset, record.timestamp, record.key, value, fault)


def _to_kafka(points: Mapping[SourcePartition, CommitPoint]) -> dict[Any, Any]:
    return {TopicPartition(*p): OffsetAndMetadata(c.offset, c.metadata(), -1) for p, c in points.items()}


def _drain(items: queue.SimpleQueue[T]) -> list[T]:
    drained: list[T] = []
    while True:
        try:
            drained.append(items.get_nowait())
        except queue.Empty:
            return drained
