"""What the Kafka client surprises with, played by a client without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    TopicAuthorizationFailedError,
)
from kafka.structs import MemberState

from consumers.kafka.source import (
    AssignmentChange,
    KafkaSource,
    SourcePartition,
    SourceUnavailable,
)
from stream_engine.config.kafka import KafkaSettings

SETTINGS = KafkaSettings()


class Client:
    """A group member that is answered by ``refusals`` first, and is then given partition 0."""

    def __init__(self, **_: Any) -> None:
        self.refusals: list[Exception] = []
        self.state = MemberState.REBALANCING
        self.stops: dict[Any, Any] = {}
        self._coordinator = SimpleNamespace(heartbeat=SimpleNamespace(last_receive=float("-inf")))

    def subscribe(self, _: list[str], listener: Any) -> None:
        self.listener = listener

    def group_metadata(self) -> Any:
        return SimpleNamespace(state=self.state)

    def poll(self, **_: Any) -> dict[Any, Any]:
        if self.refusals:
            raise self.refusals.pop()
        self.state = MemberState.STABLE
        self.listener.on_partitions_assigned([(SETTINGS.bars_topic, 0)])
        return {}

    def pause(self, _: Any) -> None:
        pass

    def seek(self, *_: Any) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    clock = SimpleNamespace(now=1000.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr("consumers.kafka.source.time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    return clock


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, clock: Any) -> KafkaSource:
    monkeypatch.setattr("consumers.kafka.source.CarefulConsumer", Client)
    return KafkaSource(SETTINGS, SETTINGS.source_topics)


def test_another_version_in_the_group_is_waited_for(
    source: KafkaSource, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source._consumer.refusals = [InconsistentGroupProtocolError() for _ in range(10)]
    for _ in range(10):
        assert source.poll(50, 1) == {}
        assert source.silent_since() is None  # a broker that refuses answers
    assert clock.now > 1010.0  # with pauses
    (warning,) = caplog.messages
    assert "another version of the consumer is in group" in warning
    assert SETTINGS.group_id in warning
    source.poll(50, 1)
    (event,) = source.events()
    assert (event.change, event.partition) == (AssignmentChange.ASSIGNED, SourcePartition(SETTINGS.bars_topic, 0))


def test_a_group_that_is_slow_to_join_is_no_silent_broker(source: KafkaSource, clock: Any) -> None:
    since, session_s = clock.now, SETTINGS.session_timeout_ms / 1000
    clock.now = since + 10.0 + session_s
    assert source.silent_since() is None
    clock.now += 1.0
    assert source.silent_since() == since


def test_a_member_without_heartbeats_is_told_of_the_silence_until_it_ends(source: KafkaSource, clock: Any) -> None:
    source.poll(50, 1)
    heartbeat = source._consumer._coordinator.heartbeat
    since = heartbeat.last_receive = clock.now + 3.0
    clock.now = since + 10.0
    assert source.silent_since() is None
    clock.now += 1.0
    assert source.silent_since() == since
    source._consumer.state = MemberState.UNJOINED  # its session has ended meanwhile
    assert source.silent_since() == since
    heartbeat.last_receive = clock.now
    assert source.silent_since() is None


@pytest.mark.parametrize(
    "error", [TopicAuthorizationFailedError({"market.bars"}), GroupAuthorizationFailedError("stream-engine")]
)
def test_rights_that_are_missing_are_waited_for(
    source: KafkaSource, clock: Any, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    source._consumer.refusals = [error] * 10
    for _ in range(10):
        assert source.poll(50, 1) == {}
        assert source.silent_since() is None
    assert clock.now > 1010.0
    (told,) = caplog.messages
    assert "give its user READ" in told
    assert type(error).__name__ in told
    source.poll(50, 1)
    assert [event.change for event in source.events()] == [AssignmentChange.ASSIGNED]


def test_a_lookup_without_the_right_to_it_is_tried_again(source: KafkaSource) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise TopicAuthorizationFailedError({"market.bars"})

    source._consumer.committed = source._consumer.beginning_offsets = refuse
    for lookup in (source.committed, source.bounds):
        with pytest.raises(SourceUnavailable, match="TopicAuthorizationFailedError"):
            lookup(SourcePartition("market.bars", 0))
