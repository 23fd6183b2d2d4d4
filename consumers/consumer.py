"""The consumer process: Kafka to the engine, in one thread.

Each turn drains the engine's messages, confirms dead letters, starts partitions, polls within the credits, sends
batches and commits what is settled. Nothing here waits for the engine: at zero credits the partitions are paused
and polling goes on, so that the group never takes this member for dead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from consumers.engine_watch import EngineWatch, Presence
from consumers.kafka.offsets import CommitPoint
from consumers.kafka.source import AssignmentChange, KafkaSource, SourceEvent, SourcePartition
from consumers.metrics import ConsumerMetrics
from consumers.registry.topic_registry import TopicRegistry
from consumers.reports import Reports
from consumers.sleepers import SleeperDesk
from consumers.starts import Starts
from consumers.stream import PartitionStream, StreamState
from consumers.wire.parts import MESSAGE_BARS, split
from consumers.wire.reasons import DeadLetter, RawRecord
from consumers.wire.records import ParsedRecord, parse_items, parse_records
from consumers.wire.trades import TRADES
from consumers.writers.writers import Writers
from stream_engine.config.config import Config
from stream_engine.messages import (
    Ack,
    ConsumerHello,
    Evaluations,
    EvaluationsWritten,
    FromEngine,
    PutToSleep,
    Refused,
    Wake,
    Welcome,
)
from stream_engine.messages.transport import EngineLink
from stream_engine.util.closing import close_all

log = logging.getLogger(__name__)

POLL_MS = 50
"""Longest wait of one poll: also how late an acknowledgement may be noticed on an idle topic."""
ABSENT_WAIT_MS = 200
"""Longest wait for a word of an engine that has not welcomed us; short enough to stay in the group."""
PAUSED_POLL_MS = 10
"""The same as ``POLL_MS`` while the credits that end the pause are awaited from the engine."""
COMMIT_EVERY_S, COMMIT_RETRY_S, COMMIT_LOST_AFTER_S = 0.5, 2.0, 30.0
PROOF_EVERY_S = 3.0
MAX_BATCHES_IN_FLIGHT = 256
"""Well under the socket's own bound, where a send would block."""
STOP_WAIT_S, CLOSE_WAIT_S = 2.0, 5.0


def in_messages(parsed: Sequence[ParsedRecord]) -> Iterator[list[ParsedRecord]]:
    """A poll's records in parts that a message to the engine may hold."""
    return split(parsed, lambda item: len(item.record.bars) if item.record else 0, MESSAGE_BARS)


class Consumer:
    """The loop's state. ``turn`` may be called by hand in tests; only one thread calls anything."""

    def __init__(
        self,
        config: Config,
        source: KafkaSource,
        writers: Writers,
        link: EngineLink,
        registry: TopicRegistry | None = None,
        reports: Reports | None = None,
    ) -> None:
        """``registry`` and the writer of answers are absent where the engine alone keeps the standing queries."""
        self._config = config
        self._source = source
        self._writers = writers
        self._link = link
        self._registry = registry
        self._reports = reports or Reports(ConsumerMetrics())
        self.metrics = self._reports.metrics
        self._watch = EngineWatch(time.monotonic())
        self._streams: dict[SourcePartition, PartitionStream] = {}
        self._starts = Starts(
            config, source, writers.windows, lambda message: self._link.send(message), self.metrics.skipped
        )
        self._sleepers = SleeperDesk(
            config.kafka, writers.windows, lambda message: self._link.send(message), self.metrics.skipped
        )
        self._next_commit = 0.0
        self._commit_deadline: float | None = None
        self._next_proof = 0.0

    def run(self, stop: threading.Event, beat: Callable[[], None] = lambda: None) -> None:
        """Until ``stop`` is set; then a clean end. ``beat`` is told of each turn. Raises OffsetResetRequired,
        WriteRefused, or KafkaError that is final."""
        try:
            while not stop.is_set():
                beat()
                self.turn()
            self._wind_down()
        finally:
            self._close()

    def turn(self) -> None:
        """One round. Waits at most for one poll, half a second while the group is joined; before it, for a word of
        an engine that has not welcomed us: nothing can be done without it."""
        if self._registry is not None and self._registry.failure is not None:
            raise self._registry.failure
        welcomed = self._watch.presence is Presence.WELCOMED
        messages = self._link.drain(0 if welcomed else ABSENT_WAIT_MS)  # before judging whether it is silent
        now = time.monotonic()
        for message in messages:
            self._on_message(message, now)
        self._keep_engine(now)
        self._on_confirmations()
        if self._watch.presence is Presence.WELCOMED:
            self._sleepers.wake(self._streams)
            self._begin(now)
        budget = self._budget()
        streaming = {p for p, s in self._streams.items() if s.state is StreamState.STREAMING}
        self._source.flow(streaming if budget > 0 else set())
        polled = self._source.poll(self._poll_ms(budget), max(1, budget))
        for event in self._source.events():
            self._on_event(event, now)
        self._deliver(polled)
        self._finish_replays()
        self._commit(now)
        self._report(now)

    def _poll_ms(self, budget: int) -> int:
        out_of_credits = budget <= 0 and self._watch.presence is Presence.WELCOMED
        return PAUSED_POLL_MS if out_of_credits else POLL_MS

    # --- the engine --------------------------------------------------------------------------------

    def _registered(self, stream: PartitionStream) -> bool:
        """No session goes live before the engine knows its standing queries and what they answered last."""
        if self._registry is None:
            return True
        return self._registry.ready_for(self._watch.boot_id, stream.since)

    def _keep_engine(self, now: float) -> None:
        if self._watch.check(now):
            log.warning("the engine is silent: holding records back until it answers")
        if self._watch.relink_due(now):
            self._link.close()
            self._link = EngineLink(self._config.transport, self.metrics.skipped)
            log.warning("no word from an engine at %s: still trying", self._config.transport.engine)
        if self._watch.hello_due(now):
            self._link.send(ConsumerHello(self._config.kafka.source_topics))

    def _on_message(self, message: FromEngine, now: float) -> None:
        if isinstance(message, Welcome):
            if self._watch.welcome(message.boot_id, message.credits, message.link, now):
                log.info("welcomed by engine %s with %d credits", message.boot_id, message.credits)
                self._restart_all(now)
                self._reports.hasten(now)  # it is to know how many partitions there are before it has the first
        elif isinstance(message, Ack | Refused | Evaluations | PutToSleep | Wake):
            if self._watch.heard(message.boot_id, now):
                log.warning("a new engine answers (boot %s)", message.boot_id)
                self._restart_all(now)
                return
            stream = self._streams.get(SourcePartition(message.topic, message.partition))
            if (
                stream is None
                or stream.state is not StreamState.STREAMING
                or stream.generation != message.generation
            ):
                return  # of an assignment that is over
            if isinstance(message, Refused):
                log.warning("%s refused by the engine: %s: starting it again", stream.partition, message.reason)
                self._next_proof = 0.0  # another member may have it
                stream.reset(now)
                return
            if isinstance(message, PutToSleep | Wake):
                self._sleepers.take(stream, message)
                return
            if isinstance(message, Evaluations):
                assert stream.settled is not None
                answers = self._writers.answers
                for offset in answers.take(message) if answers is not None else ():
                    stream.settled.hold(offset)
                return
            if message.last > stream.last:
                detail = f"of {stream.partition} up to {message.last}, and {stream.last} was sent last"
                self.metrics.skipped.note("acknowledgement_of_nothing_sent", detail)
                return
            before = stream.records_in_flight
            for session, bar in stream.open_bars_due(message):
                self._writers.windows.save(stream.partition, session, bar, stream.generation, message.last)
            letters = stream.acknowledge(message)
            self.metrics.acked += before - stream.records_in_flight
            self._write(letters, stream.generation)
            self._writers.windows.acknowledged(stream.partition, message.last)
            for window in message.windows:
                self._writers.windows.write(stream.partition, window, stream.generation, message.last)

    def _restart_all(self, now: float) -> None:
        for stream in self._streams.values():
            self._starts.forget(stream.partition)
            if stream.state is StreamState.STREAMING:
                stream.reset(now)

    def _budget(self) -> int:
        """Records that may be polled now; 0 holds everything back."""
        if self._watch.presence is not Presence.WELCOMED or any(spool.full for spool in self._writers.spools):
            return 0
        if sum(stream.batches_in_flight for stream in self._streams.values()) >= MAX_BATCHES_IN_FLIGHT:
            return 0
        in_flight = sum(stream.records_in_flight for stream in self._streams.values())
        return min(self._config.kafka.poll_records, self._watch.credits - in_flight)

    # --- partitions --------------------------------------------------------------------------------

    def _on_event(self, event: SourceEvent, now: float) -> None:
        stream = self._streams.get(event.partition)
        match event.change:
            case AssignmentChange.REVOKED:
                self._starts.forget(event.partition)
                self._writers.windows.spool.forget(event.partition)
                if self._writers.answers is not None:
                    self._writers.answers.spool.forget(event.partition)
                if stream is not None:
                    del self._streams[event.partition]
                    self._revoke(stream)
            case AssignmentChange.ASSIGNED:
                self._starts.forget(event.partition)
                if stream is not None:
                    self._revoke(stream)
                fates = self.metrics.records[str(event.partition)]
                self._streams[event.partition] = PartitionStream(event.partition, now, fates)
                log.info("%s assigned", event.partition)
            case AssignmentChange.POSITION_LOST:
                if stream is not None:
                    log.warning("%s: the log no longer holds the position %d", event.partition, stream.last + 1)
                    self._starts.forget(event.partition)
                    stream.reset(now)

    def _begin(self, now: float) -> None:
        for stream in self._streams.values():
            if stream.state is not StreamState.WAITING:
                continue
            if not self._turn_of(stream):
                self._starts.forget(stream.partition)  # those that it waits for need its place
            elif now >= stream.retry_at and self._registered(stream):
                self.metrics.rebuilds += self._starts.begin(stream, now)

    def _turn_of(self, stream: PartitionStream) -> bool:
        """Bars begin before trades, so that a symbol of theirs is known before a trade of it is seen."""
        bars = self._config.kafka.bars_topic
        waiting = {p.topic for p, other in self._streams.items() if other.state is StreamState.WAITING}
        return stream.partition.topic == bars or bars not in waiting

    def _revoke(self, stream: PartitionStream) -> None:
        message = stream.revoke()
        if message is not None:
            self._link.send(message)
        log.info("%s revoked", stream.partition)

    # --- records -----------------------------------------------------------------------------------

    def _deliver(self, polled: dict[SourcePartition, list[RawRecord]]) -> None:
        raws: list[RawRecord] = []
        spans: list[tuple[PartitionStream, int, int]] = []
        deliveries: list[tuple[PartitionStream, list[ParsedRecord]]] = []
        for partition, records in polled.items():
            stream = self._streams.get(partition)
            # Fetched before a rebalance or a restart of the partition: it is read again from its new start.
            if stream is None or stream.state is not StreamState.STREAMING:
                continue
            if stream.bars is not None:
                deliveries.append((stream, stream.bars.fold(parse_items(records, TRADES))))
            else:
                spans.append((stream, len(raws), len(raws) + len(records)))
                raws.extend(records)
        bars = parse_records(raws)
        deliveries += [(stream, bars[first:end]) for stream, first, end in spans]
        for stream, parsed in ((stream, part) for stream, whole in deliveries for part in in_messages(whole)):
            if stream.state is not StreamState.STREAMING:
                continue  # an earlier part has started it again
            try:
                batch, letters = stream.accept(parsed)
            except ValueError as error:
                log.error("%s: starting the partition again", error)
                stream.reset(time.monotonic())
                continue
            self._link.send(batch)
            replayed = sum(item.raw.offset < stream.live_from for item in parsed)
            self.metrics.replayed += replayed
            self.metrics.consumed += batch.consumed - replayed
            self.metrics.bars += sum(len(record.bars) for record in batch.records)
            self._write(letters, stream.generation)

    def _finish_replays(self) -> None:
        for partition, stream in self._streams.items():
            if stream.replaying and (self._source.position(partition) or 0) >= stream.serve_from:
                self._link.send(stream.finish_replay())

    def _write(self, letters: Iterable[DeadLetter], generation: int) -> None:
        for letter in letters:
            self._writers.letters.send(letter, generation)
            self.metrics.dead_lettered[str(letter.reason)] += 1

    def _on_confirmations(self) -> None:
        confirmed = [confirmation for spool in self._writers.spools for confirmation in spool.confirmed()]
        self._sleepers.confirmed(self._streams, confirmed)
        for topic, partition, generation, offset, number, sleeper, _ in confirmed:
            stream = self._streams.get(SourcePartition(topic, partition))
            if sleeper:
                continue  # no record's offset waits for it
            if stream is not None and stream.generation == generation and stream.settled is not None:
                stream.settled.release(offset)
                if number:
                    self._link.send(EvaluationsWritten(topic, partition, generation, number))

    # --- commits -----------------------------------------------------------------------------------

    def _points(self) -> dict[SourcePartition, CommitPoint]:
        """What is settled and not committed yet."""
        return {p: point for p, stream in self._streams.items() if (point := stream.due_point) is not None}

    def _proof(self, now: float) -> dict[SourcePartition, CommitPoint]:
        """For a static member, now and then: what is committed already, once more. kafka-python 3.0.12 tells of
        another member under its id by a commit only, not by its heartbeats."""
        if self._config.kafka.group_instance_id is None or now < self._next_proof:
            return {}
        self._next_proof = now + PROOF_EVERY_S
        streaming = (p for p, stream in self._streams.items() if stream.state is StreamState.STREAMING)
        return {p: point for p in streaming if (point := self._streams[p].commit_point) is not None}

    def _commit(self, now: float) -> None:
        for outcome in self._source.commits():
            self._commit_deadline = None
            if isinstance(outcome, Exception):
                log.warning("commit failed, trying again: %s: %s", type(outcome).__name__, outcome)
                self._next_commit = now + COMMIT_RETRY_S
                continue
            self.metrics.commits += 1
            for partition, point in outcome.items():
                stream = self._streams.get(partition)
                if stream is not None:
                    stream.committed = max(stream.committed, point.offset)
        points = self._points()
        self._source.commit_on_revoke(points)
        waiting = self._commit_deadline is not None and now < self._commit_deadline
        if not waiting:
            points = points or self._proof(now)
        if points and not waiting and now >= self._next_commit:
            self._source.commit(points)
            self._commit_deadline = now + COMMIT_LOST_AFTER_S
            self._next_commit = now + COMMIT_EVERY_S

    # --- the end -----------------------------------------------------------------------------------

    def _wind_down(self) -> None:
        """No more records; a moment for acknowledgements and dead letters on their way; then commit and let go."""
        deadline = time.monotonic() + STOP_WAIT_S
        while time.monotonic() < deadline and (
            any(spool.pending for spool in self._writers.spools)
            or any(stream.batches_in_flight for stream in self._streams.values())
        ):
            for message in self._link.drain(POLL_MS):
                self._on_message(message, time.monotonic())
            self._on_confirmations()
        points = self._points()
        if points:
            try:
                self._source.commit_now(points, int(CLOSE_WAIT_S * 1000))
            except Exception as error:  # whatever it is, what is not committed is read again
                log.warning("last commit failed: %s: %s", type(error).__name__, error)
        for stream in self._streams.values():
            self._revoke(stream)
        self._streams.clear()

    def _close(self) -> None:
        close_all(
            log,
            self._reports.close,
            self._sleepers.close,
            lambda: self._source.close(CLOSE_WAIT_S),
            *(partial(spool.close, CLOSE_WAIT_S) for spool in self._writers.spools),
            self._link.close,
        )
        log.info("consumer stopped: %s", self.metrics.as_dict())

    def _applied(self, partition: SourcePartition) -> int:
        """The offset after the last that the engine has applied. With nothing in flight that is the position,
        which passes transaction markers as well."""
        stream = self._streams[partition]
        position = None
        if stream.state is StreamState.STREAMING and not stream.batches_in_flight:
            position = self._source.position(partition)
        return stream.acknowledged + 1 if position is None else position

    def _stopped(self) -> dict[str, str]:
        """Partitions that cannot be read, of the registry's topics as well, and why."""
        others = self._registry.stopped if self._registry is not None else {}
        return {str(partition): reason for partition, reason in (self._source.stopped() | others).items()}

    def _report(self, now: float) -> None:
        if not self._reports.due(now):
            return
        begun = [p for p, stream in self._streams.items() if stream.settled is not None]
        self.metrics.lag = {str(p): max(0, end - self._applied(p)) for p, end in self._source.ends(begun).items()}
        if self._writers.answers is not None:
            self.metrics.answers_written = self._writers.answers.spool.written
            self.metrics.answers_repeated = self._writers.answers.repeated
        self.metrics.in_flight = sum(stream.records_in_flight for stream in self._streams.values())
        welcomed = self._watch.presence is Presence.WELCOMED
        sizes = self._source.sizes() if welcomed and self._streams else {}
        report = self._reports.make(self._source.silent_since(), sizes, self._stopped())
        if welcomed:
            self._link.send(report)
        self._reports.keep(report, self._watch.presence, now)
