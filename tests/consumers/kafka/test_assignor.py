"""Partitions to members: even per topic, together by number, and few moves. No broker."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.structs import TopicPartition

from consumers.kafka.assignor import TopicSpreadAssignor, spread

TOPICS = {"bars": 4, "trades": 4}
Owned = dict[str, list[tuple[str, int]]]


def cluster(topics: dict[str, int]) -> Any:
    return SimpleNamespace(
        topics=lambda: set(topics), partitions_for_topic=lambda topic: set(range(topics[topic]))
    )


def rebalance(owned: Owned, topics: dict[str, int] = TOPICS) -> Owned:
    """One round: what each member is given, when they had ``owned``."""
    members = []
    for name, partitions in owned.items():
        assignor: Any = TopicSpreadAssignor()
        assignor.member_assignment = [TopicPartition(*place) for place in partitions] or None
        members.append(
            SimpleNamespace(member_id=name, group_instance_id=None, metadata=assignor.metadata(set(topics)))
        )
        members[-1].metadata.generation_id = -1
    given = TopicSpreadAssignor().assign(cluster(topics), members)
    return {name: [(tp.topic, tp.partition) for tp in owned.partitions()] for name, owned in given.items()}


def settle(owned: Owned, topics: dict[str, int] = TOPICS) -> Owned:
    """Both rounds of a change."""
    first = rebalance(owned, topics)
    return rebalance(first, topics)


def of(owned: Owned, member: str, topic: str) -> list[int]:
    return [number for name, number in owned[member] if name == topic]


def test_a_second_member_gets_half_of_each_topic_by_the_same_numbers() -> None:
    everything = [(topic, number) for topic in TOPICS for number in range(4)]
    first = rebalance({"a": everything, "b": []})
    assert first["b"] == []  # nothing is given before its owner has let go of it
    settled = rebalance(first)
    for member in ("a", "b"):
        assert len(of(settled, member, "bars")) == 2
        assert of(settled, member, "bars") == of(settled, member, "trades")
    assert set(settled["a"]) <= set(everything)
    assert rebalance(settled) == settled


def test_only_what_a_member_that_left_had_moves() -> None:
    three = settle({"a": [], "b": [], "c": []})
    two = settle({name: owned for name, owned in three.items() if name != "c"})
    for name in ("a", "b"):
        assert set(three[name]) <= set(two[name])
        assert len(of(two, name, "bars")) == len(of(two, name, "trades")) == 2


def test_topics_of_different_sizes_are_each_spread() -> None:
    topics = {"bars": 6, "trades": 2}
    settled = settle({"a": [], "b": []}, topics)
    for name in ("a", "b"):
        assert (len(of(settled, name, "bars")), len(of(settled, name, "trades"))) == (3, 1)


def test_a_member_that_the_group_went_on_without_claims_nothing() -> None:
    assignor: Any = TopicSpreadAssignor()
    assignor.member_assignment = [TopicPartition("bars", 0)]
    assert assignor.metadata({"bars"}).owned_partitions
    assignor.forget()
    assert not assignor.metadata({"bars"}).owned_partitions


@pytest.mark.parametrize("members", [1, 3, 9])
def test_more_members_than_partitions_leave_some_without(members: int) -> None:
    settled = settle({str(number): [] for number in range(members)})
    counts = sorted(len(owned) for owned in settled.values())
    assert sum(counts) == 8
    assert counts[-1] - counts[0] <= 2


@given(
    st.integers(1, 12),
    st.lists(st.sampled_from("abcde"), min_size=1, unique=True),
    st.dictionaries(st.integers(0, 11), st.sampled_from("abcxyz")),
)
def test_spreading_is_even_and_moves_only_what_it_has_to(
    count: int, members: list[str], owners: dict[int, str]
) -> None:
    result = spread(range(count), owners, members, Counter())
    assert set(result) == set(range(count))
    parts = Counter(result.values())
    least, extra = divmod(count, len(members))
    assert sorted(parts[member] for member in members) == [least] * (len(members) - extra) + [least + 1] * extra
    had = Counter(owner for number, owner in owners.items() if number < count and owner in members)
    kept = Counter(member for number, member in result.items() if owners.get(number) == member)
    for member in members:
        assert kept[member] == min(had[member], parts[member])
