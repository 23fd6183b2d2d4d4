"""Events from the engine to any number of slow or fast clients of this process."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import Enum

import msgspec

from query_api.metrics import ApiMetrics
from query_api.schemas import AnswerChangedBody, CommittedBody, NotEvaluatedBody, RiskChangedBody, untagged
from stream_engine.messages import Committed, Event, EventEnvelope, NotEvaluated, RiskChanged
from stream_engine.messages.transport import EngineClient

_ENCODER = msgspec.json.Encoder()


class SubscriptionState(Enum):
    """``ACTIVE -> LAGGING | CLOSED``; both ends are final."""

    ACTIVE = "active"
    LAGGING = "lagging"
    """The client fell more events behind than may wait for it."""
    CLOSED = "closed"
    """The server stops."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event, encoded once for all clients."""

    boot_id: str
    sequence: int
    event: Event
    name: str
    data: str


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Events of one session, of one standing query, or of all."""

    session: str | None
    query: str | None

    def accepts(self, event: Event) -> bool:
        if isinstance(event, RiskChanged):  # it is about every session, and about no standing query
            return self.query is None
        if self.session is not None and event.session != self.session:
            return False
        return self.query is None or (not isinstance(event, Committed) and event.query == self.query)


class SubscriptionEnded(Exception):
    """The subscription is LAGGING or CLOSED; nothing more will come."""


class Subscription:
    """The events that wait for one client. They are not filtered yet: only the unbroken sequence shows that
    none was lost on the way."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[Frame] = deque()
        self._changed = asyncio.Event()
        self.state = SubscriptionState.ACTIVE

    def offer(self, frame: Frame) -> None:
        if self.state is not SubscriptionState.ACTIVE:
            return
        if len(self._frames) >= self._limit:
            self.end(SubscriptionState.LAGGING)
            return
        self._frames.append(frame)
        self._changed.set()

    def end(self, state: SubscriptionState) -> None:
        if self.state is SubscriptionState.ACTIVE:
            self.state = state
            self._frames.clear()
            self._changed.set()

    def forget(self) -> None:
        """Drop what waits: a snapshot asked for after this call includes all of it."""
        self._frames.clear()

    async def next(self, timeout_s: float) -> Frame | None:
        """The next event, or None after ``timeout_s`` of silence. Raises SubscriptionEnded."""
        while not self._frames:
            if self.state is not SubscriptionState.ACTIVE:
                raise SubscriptionEnded(self.state.value)
            self._changed.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                return None
        return self._frames.popleft()


class EventHub:
    """The process's one reader of the engine's events, and its subscriptions."""

    def __init__(self, engine: EngineClient, metrics: ApiMetrics, queue_limit: int) -> None:
        self._engine = engine
        self._metrics = metrics
        self._queue_limit = queue_limit
        self._subscriptions: set[Subscription] = set()
        self._closing = False
        self._reader: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = asyncio.create_task(self._read())

    def subscribe(self) -> Subscription:
        subscription = Subscription(self._queue_limit)
        if self._closing:
            subscription.end(SubscriptionState.CLOSED)
        self._subscriptions.add(subscription)
        self._metrics.subscribers(+1)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._metrics.subscribers(-1)
            if subscription.state is SubscriptionState.LAGGING:
                self._metrics.subscriber_dropped()

    def end_streams(self) -> None:
        """End every stream, from a signal handler as well: the server waits for open responses."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_streams)

    def _end_streams(self) -> None:
        self._closing = True
        for subscription in self._subscriptions:
            subscription.end(SubscriptionState.CLOSED)

    async def close(self) -> None:
        self._end_streams()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        async for envelope in self._engine.events():
            self._publish(envelope)
            # A burst that is already here would never let the clients run, and drop them all.
            await asyncio.sleep(0)

    def _publish(self, envelope: EventEnvelope) -> None:
        if not self._subscriptions:
            return
        frame = encode_event(envelope)
        for subscription in self._subscriptions:
            subscription.offer(frame)


def encode_event(envelope: EventEnvelope) -> Frame:
    """An event with the name and JSON data that clients see."""
    event = envelope.event
    name, body = named_body(event)
    return Frame(
        boot_id=envelope.boot_id,
        sequence=envelope.sequence,
        event=event,
        name=name,
        data=_ENCODER.encode(body).decode(),
    )


def named_body(event: Event) -> tuple[str, msgspec.Struct]:
    if isinstance(event, Committed):
        return "committed", untagged(CommittedBody, event)
    if isinstance(event, NotEvaluated):
        return "not_evaluated", untagged(NotEvaluatedBody, event)
    if isinstance(event, RiskChanged):
        return "risk_changed", untagged(RiskChangedBody, event)
    return "answer_changed", untagged(AnswerChangedBody, event)
