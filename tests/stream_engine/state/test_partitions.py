"""Ownership of partitions: fencing, order, and what is acknowledged."""

from __future__ import annotations

import pytest

from stream_engine.messages import Ack, Assign, Batch, Refused, Rejected
from stream_engine.session.session import Source
from stream_engine.state.partitions import OpenBatch, Partition, PartitionState, PartitionTable

SOURCE = Source("market.bars", 2)


@pytest.fixture
def table() -> PartitionTable:
    return PartitionTable("boot")


def assign(table: PartitionTable, generation: int, start: int, live_from: int | None = None) -> Partition | None:
    return table.assign(Assign(*_pair(), generation, start, start if live_from is None else live_from))


def batch(generation: int, follows: int, last: int) -> Batch:
    return Batch(*_pair(), generation, follows, last, last - follows, ())


def _pair() -> tuple[str, int]:
    return SOURCE.topic, SOURCE.partition


def taken(table: PartitionTable, message: Batch, unsettled: int = 0) -> OpenBatch:
    owned = table.take(message)
    assert isinstance(owned, Partition)
    waiting = OpenBatch(message.last, unsettled)
    owned.open.append(waiting)
    return waiting


def settle(table: PartitionTable, owned: Partition, *floors: int) -> Ack | None:
    settled = table.settle(owned)
    return None if settled is None else table.acknowledge(owned, settled, (), min(floors, default=None))


def test_a_partition_without_a_replay_is_live(table: PartitionTable) -> None:
    fresh = assign(table, 1, 5)
    assert fresh is not None
    assert (fresh.state, fresh.applied, fresh.taken, fresh.live_from) == (PartitionState.LIVE, 5, 4, 5)
    assert table.get(SOURCE) is fresh


def test_sessions_may_come_until_every_partition_is_assigned(table: PartitionTable) -> None:
    """After a restart one partition is live before another is assigned: its sessions are not unknown."""
    assert table.filling
    table.sizes = {SOURCE.topic: 2}
    assign(table, 1, 5)
    assert table.filling
    table.assign(Assign(SOURCE.topic, 0, 1, 0, 0))
    assert not table.filling


def test_a_replay_ends_at_live_from(table: PartitionTable) -> None:
    fresh = assign(table, 1, 5, 50)
    assert fresh is not None
    assert (fresh.state, fresh.applied, fresh.live_from) == (PartitionState.REPLAYING, 5, 50)


@pytest.mark.parametrize("generation", [3, 2])
def test_an_older_or_equal_generation_changes_nothing(table: PartitionTable, generation: int) -> None:
    owned = assign(table, 3, 5)
    assert assign(table, generation, 0) is None
    assert table.get(SOURCE) is owned
    assert owned is not None
    assert (owned.generation, owned.applied) == (3, 5)


def test_a_newer_generation_fences_the_open_batches_and_keeps_the_rest(table: PartitionTable) -> None:
    owned = assign(table, 1, 0)
    assert owned is not None
    taken(table, batch(1, -1, 9))
    table.settle(owned)
    waiting = taken(table, batch(1, 9, 19), unsettled=1)
    assert assign(table, 2, 3, 10) is owned
    assert (owned.applied, owned.taken, owned.state) == (10, 2, PartitionState.LIVE)
    waiting.unsettled = 0
    assert table.settle(owned) is None  # the acknowledgement of a fenced batch would name the new generation
    refused = table.take(batch(1, 19, 29))
    assert isinstance(refused, Refused)
    assert "generation 2" in refused.reason


def test_what_another_engine_applied_meanwhile_starts_anew(table: PartitionTable) -> None:
    owned = assign(table, 1, 0)
    assert owned is not None
    taken(table, batch(1, -1, 9))
    table.settle(owned)
    fresh = assign(table, 2, 5, 40)  # 10 to 39 were applied elsewhere: a replay, which emits nothing
    assert fresh is not owned
    assert fresh is not None
    assert (fresh.state, fresh.applied, fresh.live_from) == (PartitionState.REPLAYING, 5, 40)


def test_a_gap_starts_anew(table: PartitionTable) -> None:
    owned = assign(table, 1, 0)
    assert assign(table, 2, 7) is not owned


def test_batches_follow_each_other_whatever_the_offsets_between(table: PartitionTable) -> None:
    assign(table, 1, 0)
    taken(table, batch(1, -1, 9))
    taken(table, batch(1, 9, 25))  # gaps inside are markers; what counts is what it follows
    for follows in (9, 24, 26):
        refused = table.take(batch(1, follows, 30))
        assert isinstance(refused, Refused)
        assert (refused.boot_id, refused.expected_follows) == ("boot", 25)
    assert isinstance(table.take(batch(1, 25, 30)), Partition)


def test_unowned_partitions_are_refused(table: PartitionTable) -> None:
    refused = table.take(batch(1, -1, 0))
    assert isinstance(refused, Refused)
    assert refused.expected_follows is None


def test_applied_moves_over_settled_batches_in_order(table: PartitionTable) -> None:
    owned = assign(table, 1, 0)
    assert owned is not None
    first = taken(table, batch(1, -1, 9), unsettled=2)
    second = taken(table, batch(1, 9, 19), unsettled=1)
    second.unsettled = 0
    second.rejected.append(Rejected(12, "late", ""))
    assert table.settle(owned) is None
    first.unsettled = 0
    first.applied, second.duplicates = 2, 3
    first.rejected.append(Rejected(3, "late", ""))
    assert settle(table, owned) == Ack(
        "boot", *_pair(), 1, 19, 20, (Rejected(3, "late", ""), Rejected(12, "late", "")), (), 2, 3
    )
    assert table.applied(2) == table.applied(2, "market.bars") == 20
    assert table.applied(2, "other") is table.applied(3) is None
    assert table.settle(owned) is None


def test_the_floor_is_the_oldest_that_any_session_needs(table: PartitionTable) -> None:
    owned = assign(table, 1, 0)
    assert owned is not None
    taken(table, batch(1, -1, 9))
    ack = settle(table, owned, 7, 3)
    assert ack is not None
    assert (ack.last, ack.floor) == (9, 3)


def test_redelivery_never_takes_applied_back(table: PartitionTable) -> None:
    owned = assign(table, 1, 0)
    assert owned is not None
    taken(table, batch(1, -1, 99))
    table.settle(owned)
    assign(table, 2, 50)
    taken(table, batch(2, 49, 59))
    ack = settle(table, owned)
    assert ack is not None
    assert (ack.generation, ack.last, owned.applied) == (2, 59, 100)


def test_only_the_owner_or_a_newer_one_revokes(table: PartitionTable) -> None:
    owned = assign(table, 4, 0)
    assert table.revoke(SOURCE, 3) is None
    assert table.revoke(Source("other", 2), 9) is None
    assert table.revoke(SOURCE, 4) is owned
    assert table.all() == ()
    assert table.revoke(SOURCE, 4) is None
