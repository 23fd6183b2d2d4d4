"""Server-sent events: order, filters, and what happens when the sequence breaks."""

from __future__ import annotations

import asyncio
import socket
import time

import msgspec
import pytest

from query_api.events import EventFilter, Frame, Subscription, SubscriptionEnded, SubscriptionState
from stream_engine.messages import Snapshot, SnapshotRequest, StatusRequest
from tests.support.api_service import changed, committed, status
from tests.support.event_stream import serve_snapshots, stream


def test_connected_then_the_snapshot_then_only_what_is_newer(service):
    def snapshot(_: SnapshotRequest) -> Snapshot:
        # Published while the snapshot is made: 8 is in it already, 9 is not.
        service.engine.publish(8, committed(version=8))
        service.engine.publish(9, committed(version=9))
        return Snapshot(8, (changed(answer="up"), changed(session="MSFT", answer="flat")))

    service.engine.on[SnapshotRequest] = snapshot

    with stream(service) as events:
        first = events.next()
        assert first[0] == "connected"
        assert first[1] == {"boot_id": "boot-a", "sequence": 8, "session": None, "query": None, "resync": None}
        assert first[2] == "boot-a:8"
        replayed = [events.next(), events.next()]
        assert [(name, data["session"], data["answer"]) for name, data, _ in replayed] == [
            ("answer_changed", "AAPL", "up"),
            ("answer_changed", "MSFT", "flat"),
        ]
        name, data, identifier = events.next()
        assert (name, data["session_version"], identifier) == ("committed", 9, "boot-a:9")
        service.engine.publish(10, changed(answer="down", previous="up"))
        name, data, identifier = events.next()
        assert (name, data["answer"], data["previous"], identifier) == (
            "answer_changed",
            "down",
            "up",
            "boot-a:10",
        )
        assert "type" not in data
        assert data["class"] == "trend"


def test_filters_reach_the_snapshot_and_the_events(service):
    serve_snapshots(service, Snapshot(0, ()))

    with stream(service, session="AAPL", query="q1") as events:
        assert events.next()[1]["query"] == "q1"
        assert service.engine.of(SnapshotRequest) == [SnapshotRequest("AAPL", "q1")]
        service.engine.publish(1, changed(session="MSFT"))
        service.engine.publish(2, changed(query="q2"))
        service.engine.publish(3, committed("AAPL"))
        service.engine.publish(4, changed(answer="down"))

        assert events.next()[2] == "boot-a:4"


def test_empty_filters_are_none(service):
    serve_snapshots(service, Snapshot(0, ()))

    with stream(service, session="", query="") as events:
        events.next()

    assert service.engine.of(SnapshotRequest) == [SnapshotRequest(None, None)]


def test_silence_is_broken_by_heartbeats(make_service):
    service = make_service(heartbeat_s=0.05)
    serve_snapshots(service, Snapshot(3, ()))

    with stream(service) as events:
        events.next()
        name, data, identifier = events.next()

    assert (name, data["sequence"], identifier) == ("heartbeat", 3, "boot-a:3")


def test_a_hole_in_the_sequence_starts_the_stream_over(service):
    serve_snapshots(service, Snapshot(5, ()), Snapshot(9, (changed(answer="flat"),)))

    with stream(service) as events:
        events.next()
        service.engine.publish(6, committed(version=6))
        assert events.next()[2] == "boot-a:6"
        service.engine.publish(9, committed(version=9))  # 7 and 8 were lost

        name, data, _ = events.next()
        assert (name, data["sequence"], data["resync"]) == ("connected", 9, "gap")
        assert events.next()[1]["answer"] == "flat"
        service.engine.publish(10, committed(version=10))
        assert events.next()[2] == "boot-a:10"


def test_a_new_engine_starts_the_stream_over(service):
    serve_snapshots(service, Snapshot(50, ()), Snapshot(1, (changed(answer="flat"),)))

    with stream(service) as events:
        events.next()
        service.engine.on[StatusRequest] = lambda _: status(boot_id="boot-b")
        service.engine.publish(1, committed(version=60), boot_id="boot-b")

        name, data, identifier = events.next()
        assert (name, data["resync"], identifier) == ("connected", "engine_restarted", "boot-b:1")
        assert events.next()[1]["answer"] == "flat"
        service.engine.publish(2, committed(version=61), boot_id="boot-b")
        assert events.next()[2] == "boot-b:2"


def test_an_engine_that_is_away_during_the_restart_is_waited_for(make_service):
    service = make_service(engine_timeout_s=0.5)
    serve_snapshots(service, Snapshot(5, ()))

    with stream(service) as events:
        events.next()
        service.engine.on[StatusRequest] = lambda _: None
        service.engine.publish(1, committed(), boot_id="boot-b")
        assert events.next()[0] == "heartbeat"
        serve_snapshots(service, Snapshot(1, ()))
        service.engine.on[StatusRequest] = lambda _: status(boot_id="boot-b")

        assert events.skip_heartbeats()[2] == "boot-b:1"


def test_reconnecting_gives_connected_and_the_snapshot_again(service):
    serve_snapshots(service, Snapshot(4, (changed(),)))

    for _ in range(2):
        with stream(service) as events:
            assert [events.next()[0], events.next()[0]] == ["connected", "answer_changed"]


def test_a_client_that_leaves_is_forgotten(service):
    serve_snapshots(service, Snapshot(0, ()))
    with stream(service) as events:
        events.next()
        assert service.metric("query_api_event_subscribers") == 1

    for _ in range(200):
        if service.metric("query_api_event_subscribers") == 0:
            return
    pytest.fail("the subscription outlived its client")


def test_a_refused_stream_leaves_no_subscription(make_service):
    service = make_service(engine_timeout_s=0.05)
    service.engine.on[StatusRequest] = lambda _: None

    assert service.http.get("/v1/events").status_code == 503
    assert service.metric("query_api_event_subscribers") == 0


def test_a_client_too_slow_is_dropped_with_a_gap(make_service):
    """It never reads, so the socket's buffers fill, then its queue; the others go on."""
    service = make_service(event_queue=5)
    serve_snapshots(service, Snapshot(0, tuple(changed(question="x" * 4000) for _ in range(5000))))
    port = service.http.base_url.port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        deadline = time.monotonic() + 60
        while service.metric("query_api_event_subscribers") == 0:
            assert time.monotonic() < deadline, "it has not subscribed"
        for sequence in range(1, 50):
            service.engine.publish(sequence, committed())
        (subscription,) = service.end_streams.__self__._subscriptions
        while subscription.state is not SubscriptionState.LAGGING:  # nothing tells it before its stream ends
            assert time.monotonic() < deadline, "it has not fallen behind"
            time.sleep(0.01)
        # Reading on empties the buffers, so that the server can say why it ends the stream.
        received = b""
        while chunk := slow.recv(1 << 20):
            received = (received + chunk)[-4096:]
            if b"event: gap" in received:
                break

    assert b"event: gap" in received
    assert service.metric("query_api_event_subscribers_dropped_total") == 1


# --- the parts ---------------------------------------------------------------------------------------


def frame(sequence: int) -> Frame:
    return Frame("boot", sequence, committed(), "committed", "{}")


async def _next(subscription: Subscription) -> Frame | None:
    return await subscription.next(0.01)


def test_a_subscription_keeps_order_and_its_limit():
    async def scenario() -> None:
        subscription = Subscription(2)
        subscription.offer(frame(1))
        subscription.offer(frame(2))
        first = await _next(subscription)
        assert first is not None
        assert first.sequence == 1
        subscription.offer(frame(3))
        assert subscription.state is SubscriptionState.ACTIVE
        subscription.offer(frame(4))
        assert subscription.state is SubscriptionState.LAGGING
        with pytest.raises(SubscriptionEnded):
            await _next(subscription)
        subscription.end(SubscriptionState.CLOSED)
        assert subscription.state is SubscriptionState.LAGGING  # the first end is the reason

    asyncio.run(scenario())


def test_silence_is_none_and_forgetting_empties():
    async def scenario() -> None:
        subscription = Subscription(2)
        assert await _next(subscription) is None
        subscription.offer(frame(1))
        subscription.forget()
        assert await _next(subscription) is None

    asyncio.run(scenario())


def test_a_filter_by_query_leaves_commits_out():
    event = changed(session="A", query="q1")

    assert EventFilter(None, None).accepts(committed("A"))
    assert EventFilter("A", "q1").accepts(event)
    assert not EventFilter("B", None).accepts(event)
    assert not EventFilter(None, "q2").accepts(event)
    assert not EventFilter("A", "q1").accepts(committed("A"))
    assert EventFilter("A", None).accepts(msgspec.structs.replace(event, query="q2"))
