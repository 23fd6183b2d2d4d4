"""ZeroMQ sockets between the processes: requests to the engine, replies and events from it.

The engine binds a ROUTER (requests) and a PUB (events). Every other process connects a DEALER, and the API
also a SUB. Frames of a request are ``[correlation id, message]``; a reply repeats the id, a message that
answers no request (an acknowledgement, say) carries an empty one. Sockets are opened by the process that
uses them, never before a fork.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from stream_engine.config.transport import TransportSettings
from stream_engine.messages import ErrorReply, Event, EventEnvelope, FromEngine, ToEngine
from stream_engine.messages.bounds import UNREADABLE
from stream_engine.util.ownership import require_our_socket
from stream_engine.util.skipped import Skipped

log = logging.getLogger(__name__)

_ENCODER = msgspec.msgpack.Encoder()
MAX_FRAME_BYTES = 64 * 2**20
"""A larger frame is refused by the socket before it takes memory, and its sender cut off. What this project sends
is split well below it: batches and windows by their bars, answers by their number."""
MAX_UNREAD = 10_000
"""Messages that may wait for one peer that does not read them; what comes then is dropped, and counted."""
MAX_POSTS = 64
"""Messages without a reply that may wait in this process for an engine that is behind."""


class EngineUnavailable(RuntimeError):
    """The engine did not answer in time: it is starting, restarting, or not there."""


class MessageTooLarge(ValueError):
    """A message that no socket would take: its frame has a bound."""


def require_our_sockets(*endpoints: str) -> None:
    """An ipc endpoint is a file: its folder is made where it is absent, and neither is another user's. Raises
    NotOurs."""
    for endpoint in endpoints:
        if endpoint.startswith("ipc://"):
            require_our_socket(Path(endpoint.removeprefix("ipc://")))


def _encode(message: ToEngine | FromEngine) -> bytes:
    """Raises MessageTooLarge."""
    payload = _ENCODER.encode(message)
    if len(payload) > MAX_FRAME_BYTES:
        name = type(message).__name__
        raise MessageTooLarge(f"{name} of {len(payload)} bytes: at most {MAX_FRAME_BYTES} go between processes")
    return payload


def _frames(socket: zmq.Socket[bytes], count: int) -> list[bytes] | None:
    """The frames of the next message; None where there are not ``count``. What is too much is not kept. Raises
    Again."""
    frames = [socket.recv(zmq.NOBLOCK)]
    while socket.getsockopt(zmq.RCVMORE):
        frame = socket.recv(zmq.NOBLOCK)
        if len(frames) <= count:
            frames.append(frame)
    return frames if len(frames) == count else None


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a reply goes: the socket identity and the correlation id of the request."""

    identity: bytes
    correlation: bytes = b""

    def unsolicited(self) -> Peer:
        return Peer(self.identity)


class EngineServer:
    """The engine's side; used by the engine thread only. ``unreadable`` is told of a message that could be no
    message of ours: its peer, its bytes and why; whoever waits for a reply is answered here."""

    def __init__(
        self,
        settings: TransportSettings,
        unreadable: Callable[[Peer, bytes, str], None] = lambda peer, payload, why: None,
    ) -> None:
        self._unreadable = unreadable
        self.skipped = Skipped(log)
        self._context = zmq.Context()
        self._decoder = msgspec.msgpack.Decoder(ToEngine)
        self._router = self._context.socket(zmq.ROUTER)
        self._events = self._context.socket(zmq.PUB)
        self._router.setsockopt(zmq.LINGER, 500)
        # Credits and the API's own limits keep what a peer of ours has waiting far below that.
        self._router.setsockopt(zmq.SNDHWM, MAX_UNREAD)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # else what does not fit is dropped without a word
        self._events.setsockopt(zmq.LINGER, 500)
        self._events.setsockopt(zmq.SNDHWM, 100_000)
        for socket, endpoint in ((self._router, settings.engine), (self._events, settings.events)):
            require_our_sockets(endpoint)
            socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
            socket.bind(endpoint)

    @property
    def malformed(self) -> int:
        """Messages that could not be read."""
        counts = self.skipped.counts
        return counts.get("frames", 0) + counts.get("unreadable", 0)

    def receive(self, timeout_ms: int, limit: int = 256) -> list[tuple[Peer, ToEngine]]:
        """Messages that have arrived, at most ``limit``, malformed ones included; waits up to
        ``timeout_ms`` for the first."""
        received: list[tuple[Peer, ToEngine]] = []
        if timeout_ms and not self._router.poll(timeout_ms):
            return received
        for _ in range(limit):
            try:
                frames = _frames(self._router, 3)
            except zmq.Again:
                break
            if frames is None:
                self.skipped.note("frames", "a message of other than three frames: a stranger on the socket")
                continue
            identity, correlation, payload = frames
            peer = Peer(identity, correlation)
            try:
                received.append((peer, self._decoder.decode(payload)))
            except UNREADABLE as error:
                self.skipped.note("unreadable", f"{len(payload)} bytes: {error}")
                if correlation:
                    why = f"the engine cannot read the request: {error}"
                    self.send(peer, ErrorReply(422, "invalid_request_error", why))
                else:
                    self._unreadable(peer, payload, str(error))
        return received

    def send(self, peer: Peer, message: FromEngine) -> None:
        try:
            payload = _encode(message)
        except MessageTooLarge as error:
            self.skipped.note("reply_too_large", str(error))
            if not peer.correlation:
                return
            payload = _ENCODER.encode(ErrorReply(500, "reply_too_large", f"{error}: ask for less at once"))
        try:
            self._router.send_multipart((peer.identity, peer.correlation, payload), zmq.NOBLOCK)
        except zmq.Again:
            self.skipped.note("peer_does_not_read", f"{type(message).__name__} of {len(payload)} bytes")
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:  # it has left
                raise

    def publish(self, boot_id: str, sequence: int, event: Event) -> None:
        self._events.send(_ENCODER.encode(EventEnvelope(boot_id, sequence, event)))

    def close(self) -> None:
        self._router.close()
        self._events.close()
        self._context.term()


class EngineLink:
    """A consumer's side: send without waiting, drain what came back. One thread. What cannot be read is counted in
    ``skipped``."""

    def __init__(self, settings: TransportSettings, skipped: Skipped | None = None) -> None:
        require_our_sockets(settings.engine)
        self._skipped = skipped or Skipped(log)
        self._context = zmq.Context()
        self._decoder = msgspec.msgpack.Decoder(FromEngine)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        # Messages to an engine that is away would be delivered to the next one; fencing refuses those, and
        # the bound on records in flight keeps the queue short.
        self._socket.connect(settings.engine)

    def send(self, message: ToEngine) -> None:
        """Raises MessageTooLarge."""
        self._socket.send_multipart((b"", _encode(message)))

    def drain(self, timeout_ms: int = 0) -> list[FromEngine]:
        """Every message that has arrived; waits up to ``timeout_ms`` for the first."""
        received: list[FromEngine] = []
        if timeout_ms and not self._socket.poll(timeout_ms):
            return received
        while True:
            try:
                frames = _frames(self._socket, 2)
                if frames is not None:
                    received.append(self._decoder.decode(frames[1]))
            except zmq.Again:
                return received
            except UNREADABLE as error:
                self._skipped.note("engine_message_unreadable", str(error))

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class EngineClient:
    """The API's side: many concurrent requests over one socket, matched by correlation id."""

    def __init__(self, settings: TransportSettings, skipped: Skipped | None = None) -> None:
        """What cannot be read is counted in ``skipped``."""
        self._settings = settings
        self._context = zmq.asyncio.Context()
        self._decoder = msgspec.msgpack.Decoder(FromEngine)
        self._numbers = itertools.count(1)
        self._pending: dict[bytes, asyncio.Future[FromEngine]] = {}
        self._socket: zmq.asyncio.Socket | None = None
        self._posts: zmq.Socket[bytes] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._skipped = skipped or Skipped(log)

    async def start(self) -> None:
        """Raises NotOurs where a socket is another user's."""
        require_our_sockets(self._settings.engine, self._settings.events)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        # Nothing is queued for an engine that is away: a request that was given up must not run later.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.connect(self._settings.engine)
        # A pipe of its own: what is posted never stands in the way of a request, and what does not fit is refused.
        self._posts = zmq.Context.shadow(self._context).socket(zmq.DEALER)
        self._posts.setsockopt(zmq.LINGER, 0)
        self._posts.setsockopt(zmq.IMMEDIATE, 1)
        self._posts.setsockopt(zmq.SNDHWM, MAX_POSTS)
        self._posts.connect(self._settings.engine)
        self._reader = asyncio.create_task(self._read())

    async def request(self, message: ToEngine, timeout_s: float) -> FromEngine:
        """The engine's reply. Raises EngineUnavailable when none comes within ``timeout_s``."""
        if self._socket is None:
            raise EngineUnavailable("the client is not started")
        correlation = next(self._numbers).to_bytes(8, "big")
        future: asyncio.Future[FromEngine] = asyncio.get_running_loop().create_future()
        self._pending[correlation] = future
        try:
            async with asyncio.timeout(timeout_s):
                await self._socket.send_multipart((correlation, _encode(message)))
                return await future
        except TimeoutError:
            raise EngineUnavailable(f"no answer from the engine within {timeout_s:g} s") from None
        finally:
            self._pending.pop(correlation, None)

    def post(self, message: ToEngine) -> bool:
        """Hand over a message that has no reply. False where the engine is away or behind: it is not sent then."""
        if self._posts is None:
            return False
        try:
            self._posts.send_multipart((b"", _encode(message)), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    async def events(self) -> AsyncIterator[EventEnvelope]:
        """Events from now on. Subscribe first, take a snapshot then, and skip what it already holds. One that
        cannot be read is left out: the hole in the sequence tells."""
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 100_000)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        socket.subscribe(b"")
        socket.connect(self._settings.events)
        decoder = msgspec.msgpack.Decoder(EventEnvelope)
        try:
            while True:
                frames = await socket.recv_multipart()
                try:
                    envelope = decoder.decode(b"".join(frames))
                except UNREADABLE as error:
                    self._skipped.note("event_unreadable", str(error))
                    continue
                yield envelope
        finally:
            socket.close()

    async def _read(self) -> None:
        assert self._socket is not None
        while True:
            correlation, *payload = await self._socket.recv_multipart()
            future = self._pending.get(correlation)
            if future is None or future.done():
                continue
            try:
                future.set_result(self._decoder.decode(b"".join(payload)))
            except UNREADABLE as error:  # an engine of another version: its reply is no answer
                self._skipped.note("reply_unreadable", str(error))
                future.set_exception(EngineUnavailable(f"the engine's reply cannot be read: {error}"))

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        for socket in (self._socket, self._posts):
            if socket is not None:
                socket.close()
        self._context.term()
