"""An engine's service that a test turns by hand, and a stranger's socket to it."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import zmq

from stream_engine.messages import Ack, Evaluations, FromEngine, StatusRequest, ToEngine
from stream_engine.process.service import EngineService
from stream_engine.session.session import Source

PATIENCE_MS = 10_000
decode: Callable[[bytes], FromEngine] = msgspec.msgpack.Decoder(FromEngine).decode


class StrangersEngine:
    """A service that nobody runs but the test, and a stranger's socket to it."""

    def __init__(self, service: EngineService, endpoint: str) -> None:
        self.service = service
        self._context = zmq.Context()
        self._endpoint = endpoint
        self.stranger = self.another()

    def another(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(self._endpoint)
        return socket

    def hear(self, *messages: ToEngine | bytes, correlation: bytes = b"", await_: int = 0) -> list[FromEngine]:
        """What the engine replies to them, at least ``await_`` replies. What it says of partitions comes when it
        comes, and is left out."""
        for message in messages:
            payload = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
            self.stranger.send_multipart([correlation, payload])
        self.stranger.send_multipart([b"last", msgspec.msgpack.encode(StatusRequest())])
        replies: list[FromEngine] = []
        ended = False
        until = time.monotonic() + PATIENCE_MS / 1000
        while time.monotonic() < until:
            while self.service.turn(1):
                pass
            while self.stranger.poll(0):
                mark, payload = self.stranger.recv_multipart()
                reply = decode(payload)
                if mark == b"last":
                    self.status, ended = reply, True
                elif mark == correlation and not isinstance(reply, Ack | Evaluations):
                    replies.append(reply)
            if ended and len(replies) >= await_:
                return replies
        raise AssertionError("the engine does not answer")

    @property
    def skipped(self) -> dict[str, int]:
        return self.service._server.skipped.counts

    @property
    def partitions(self) -> list[Source]:
        return [owned.source for owned in self.service.engine.ingest.partitions.all()]

    def close(self) -> None:
        self.stranger.close()
        self._context.term()
        self.service.engine.close()
        self.service._server.close()
