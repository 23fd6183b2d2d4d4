"""Write, confirm, retry: what every writer does with its messages, in one place.

Nothing waits here: a message that the broker does not take now is tried again later, and counts as written once
the broker has confirmed it. What is written, what becomes of a message that does not fit, and how messages of one
key are ordered, is the writer's own: its ``Rules``.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from kafka.errors import KafkaError

from consumers.kafka.producer import TOO_LARGE, SteadyProducer, raise_if_final
from consumers.kafka.source import SourcePartition

log = logging.getLogger(__name__)

Content = TypeVar("Content")
"""What a message is made of."""

RETRY_AFTER_S = 1.0
DELIVERY_TIMEOUT_MS = 30_000
"""Longer than a broker is restarted: until then the producer itself tries again, and writes nothing twice. A
consumer that is cut off must not write much later, when its partitions have another owner."""
CUT_OFF_AFTER_S = 5.0
"""A write that takes so long, of a partition that has another owner by then, is not left to the producer."""
MAX_PENDING = 1_000
"""Of a writer: at so many no further records are taken, whose messages would have no room."""


class Confirmation(NamedTuple):
    """What was written because of this record is in its topic. ``number`` is that of the ``Evaluations`` whose
    last answer this was; 0 for anything else. ``session`` is the one that sleeps on the window that was written:
    its message is number ``at`` of the topic, -1 where another one, or a deletion, stands in its place."""

    topic: str
    partition: int
    generation: int
    offset: int
    number: int = 0
    session: str = ""
    at: int = -1


class Order(Enum):
    """What messages of one key are to one another."""

    ANY = "any"
    """Nothing: each is written, whenever it can be."""
    NEWEST = "newest"
    """A newer one takes the place of an older one, which never follows it: compaction would keep it."""
    EVERY = "every"
    """Each is written in its order, and all are confirmed in theirs. After a failure what followed it under its
    key is written again as well: the newest is written last, whatever the broker has of them."""


@dataclass(slots=True, eq=False)
class Write(Generic[Content]):
    """One message, because of records of ``source``. ``tickets`` are what its confirmation settles. ``content`` is
    None where there is nothing to write, or no more; ``future`` where it is not sent, or is to be sent again."""

    source: SourcePartition
    key: Hashable
    content: Content | None
    tickets: list[Confirmation]
    future: Any = None
    sent_at: float = 0.0

    @property
    def waits(self) -> bool:
        return self.content is not None and self.future is None

    @property
    def on_its_way(self) -> bool:
        return self.future is not None and not self.future.is_done

    @property
    def failed(self) -> bool:
        return self.content is not None and self._ended and not self.future.succeeded()

    @property
    def settled(self) -> bool:
        return self.content is None or (self._ended and self.future.succeeded())

    @property
    def _ended(self) -> bool:
        return self.future is not None and self.future.is_done


class Rules(ABC, Generic[Content]):
    """What differs between the writers. ``what`` names a message of theirs in the log."""

    what: str
    order: Order

    @abstractmethod
    def topic(self, content: Content) -> str: ...

    @abstractmethod
    def message(self, content: Content) -> dict[str, Any]:
        """What ``KafkaProducer.send`` takes beside the topic."""

    @abstractmethod
    def shortened(self, content: Content, error: KafkaError) -> Content | None:
        """What is written in its place where it is too large for its topic; None where it is left out."""

    def after_refusal(self, content: Content) -> Content | None:
        """What is written at once where a broker has refused this message, or one beside it, as too large. None:
        the same again, because the next producer tells which one it was."""
        return None

    def may_go(self, content: Content) -> bool:
        """Whether it may be written by now."""
        return True

    def stands(self, content: Content) -> bool:
        """Whether it is what was to be written, and not what takes its place."""
        return True

    def dropped(self, content: Content) -> None:
        """It is not written, because its partition has another owner. The newest is told first."""


class Spool(Generic[Content]):
    """Messages on their way, of one writer. One thread."""

    def __init__(self, rules: Rules[Content], make_producer: Callable[[], Any]) -> None:
        """Raises what ``make_producer`` does."""
        self._rules = rules
        self._producer = SteadyProducer(make_producer)
        self._writes: dict[Write[Content], None] = {}
        self._newest: dict[Hashable, Write[Content]] = {}
        self._forgotten: set[SourcePartition] = set()
        self._not_before = 0.0
        self.written = 0
        """Messages that the broker has confirmed."""

    @property
    def pending(self) -> int:
        """Messages not confirmed yet."""
        return len(self._writes)

    @property
    def full(self) -> bool:
        """Nothing more should be taken that may have to be written."""
        return len(self._writes) >= MAX_PENDING

    def __iter__(self) -> Iterator[Write[Content]]:
        return iter(self._writes)

    def add(self, write: Write[Content]) -> None:
        """The next message. Its partition is ours, also where it was not for a time."""
        self._forgotten.discard(write.source)
        if self._rules.order is Order.NEWEST:
            before = self._newest.get(write.key)
            if before is not None and before.waits:
                write.tickets += before.tickets
                self._remove(before)
            self._newest[write.key] = write
        self._writes[write] = None

    def confirmed(self) -> list[Confirmation]:
        """Push on what waits, and return what is in its topic since the last call. Raises WriteRefused."""
        self._take_back()
        self._push()
        done: list[Confirmation] = []
        for write in list(self._writes):
            if write.settled:
                self._remove(write)
                self.written += write.content is not None
                done += [t._replace(at=self._place(write)) if t.session else t for t in write.tickets]
            elif self._rules.order is Order.EVERY:
                break
        return done

    def forget(self, source: SourcePartition) -> None:
        """The partition has another owner: what was not sent must not follow that one's messages, nor what is on
        its way and fails."""
        self._forgotten.add(source)
        self._drop_forgotten()
        sent_at = (write.sent_at for write in self._writes if write.source == source and write.on_its_way)
        if any(time.monotonic() - at > CUT_OFF_AFTER_S for at in sent_at):
            self._producer.give_up()

    def close(self, timeout_s: float) -> None:
        self._producer.close(timeout_s)

    def _place(self, write: Write[Content]) -> int:
        """The number of the message in its topic; -1 where that is not what was to be written."""
        stands = write.content is not None and self._rules.stands(write.content)
        return int(write.future.value.offset) if stands else -1

    def _remove(self, write: Write[Content]) -> None:
        del self._writes[write]
        if self._newest.get(write.key) is write:
            del self._newest[write.key]

    def _drop_forgotten(self) -> None:
        for write in reversed(list(self._writes)):
            if write.source in self._forgotten and write.future is None:
                self._remove(write)
                if write.content is not None:
                    self._rules.dropped(write.content)

    def _take_back(self) -> None:
        """What failed is to be sent once more."""
        failed = {write: write.future.exception for write in self._writes if write.failed}
        again = [write for write, error in failed.items() if self._fails(write, error)]
        if again:
            self._try_again(again, failed[again[0]])
        if self._rules.order is Order.EVERY:
            keys = set()
            for write in self._writes:
                if write in failed:
                    keys.add(write.key)
                if write.key in keys:
                    write.future = None
        if failed:
            self._drop_forgotten()

    def _fails(self, write: Write[Content], error: BaseException) -> bool:
        """Whether it is to be tried again after a while."""
        content = write.content
        assert content is not None, "nothing was sent of it"
        self._producer.failed(error)
        newer = self._newest.get(write.key)
        if self._rules.order is Order.NEWEST and newer is not write:
            write.content = None  # a newer one stands, or will stand, in its place
            if newer is not None:
                newer.tickets += write.tickets
                self._remove(write)
            return False
        write.future = None
        if not isinstance(error, TOO_LARGE):  # else it may be another one that was on its way with it
            raise_if_final(self._rules.topic(content), error)
            return True
        shorter = self._rules.after_refusal(content)
        if shorter is not None:
            write.content = shorter
        return shorter is None

    def _push(self) -> None:
        if not self._producer.ready() or time.monotonic() < self._not_before:
            return
        waiting = [(write, write.content) for write in self._writes if write.content is not None and write.waits]
        for write, content in [pair for pair in waiting if self._rules.may_go(pair[1])]:
            topic = self._rules.topic(content)
            try:
                write.future = self._producer.send(topic, **self._rules.message(content))
            except TOO_LARGE as error:
                write.content = self._rules.shortened(content, error)
            except KafkaError as error:
                raise_if_final(topic, error)
                self._try_again([write], error)
                return  # the broker is away: each further try would block as long again
            else:
                write.sent_at = time.monotonic()

    def _try_again(self, writes: Sequence[Write[Content]], error: BaseException) -> None:
        """After a while; where their order allows it behind the others, because they may be the only ones that
        fail."""
        first = writes[0]
        where = f"{first.source} offset {first.tickets[0].offset}" if first.tickets else str(first.source)
        more = f" and {len(writes) - 1} more" if len(writes) > 1 else ""
        cause = f"{type(error).__name__}: {error}"
        topic = self._rules.topic(first.content) if first.content is not None else "its topic"
        log.warning("%s of %s%s not written to %s, trying again: %s", self._rules.what, where, more, topic, cause)
        self._not_before = time.monotonic() + RETRY_AFTER_S
        if self._rules.order is not Order.EVERY:
            for write in writes:
                del self._writes[write]
                self._writes[write] = None
