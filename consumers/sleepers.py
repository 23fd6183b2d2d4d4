"""Sessions that sleep, on Kafka's side: their windows are written as they fall asleep, and read as they wake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from consumers.kafka.source import SourcePartition
from consumers.stream import PartitionStream
from consumers.writers.spool import Confirmation
from consumers.writers.window_lookup import WindowLookup
from consumers.writers.windows import WindowWriter, in_parts
from stream_engine.config.kafka import KafkaSettings
from stream_engine.messages import Asleep, PutToSleep, Restore, Sleeper, ToEngine, Wake
from stream_engine.util.skipped import Skipped

Streams = Mapping[SourcePartition, PartitionStream]


class SleeperDesk:
    """What the engine asks for, and its answers. One thread, the one that polls; nothing here waits."""

    def __init__(
        self, settings: KafkaSettings, windows: WindowWriter, send: Callable[[ToEngine], None], skipped: Skipped
    ) -> None:
        self._windows = windows
        self._send = send
        self._lookup = WindowLookup(settings, skipped)

    def take(self, stream: PartitionStream, message: PutToSleep | Wake) -> None:
        """Of the stream's present generation."""
        if isinstance(message, Wake):
            self._lookup.want(stream.partition, stream.generation, message.sleepers)
        elif stream.bars is None:
            for window in message.windows:
                self._windows.write(stream.partition, window, stream.generation, window.offset)
        else:
            # Of trades: each of these sessions has a bar here that is not closed.
            awake = tuple(Sleeper(window.session, window.offset, -1) for window in message.windows)
            self._send(Asleep(*stream.partition, stream.generation, awake))

    def confirmed(self, streams: Streams, confirmations: Iterable[Confirmation]) -> None:
        """Tell the engine which of the windows that it asked for are in their topic."""
        asleep: defaultdict[PartitionStream, list[Sleeper]] = defaultdict(list)
        for confirmation in confirmations:
            stream = streams.get(SourcePartition(confirmation.topic, confirmation.partition))
            if confirmation.session and stream is not None and stream.generation == confirmation.generation:
                asleep[stream].append(Sleeper(confirmation.session, confirmation.offset, confirmation.at))
        for stream, sleepers in asleep.items():
            self._send(Asleep(*stream.partition, stream.generation, tuple(sleepers)))

    def wake(self, streams: Streams) -> None:
        """Hand over the windows that were read since the last call."""
        for source, generation, windows in self._lookup.found():
            stream = streams.get(source)
            if stream is not None and stream.generation == generation:
                for part in in_parts(windows):
                    self._send(Restore(*source, generation, part))

    def close(self) -> None:
        self._lookup.close()
