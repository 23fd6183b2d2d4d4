"""Who gets which partitions: each topic evenly, the same number of every topic to one member, with few moves.

Kafka's sticky assignors balance the sum over all topics, so that a member might get quiet partitions only; its
range assignor spreads each topic, and takes everything from everyone at each change. This one spreads like the
second and moves like the first: a symbol's bars and trades, which have the same key, lie with one member.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment


def spread(
    numbers: Iterable[int], owners: Mapping[int, str], members: Sequence[str], load: Mapping[str, int]
) -> dict[int, str]:
    """A member for each number. Each gets the n-th part of them, rounded up for some: those that own more now,
    then those with the smaller ``load``, then by their order. What a member owns it keeps, up to its part."""
    wanted = sorted(numbers)
    owned = Counter(owners[number] for number in wanted if owners.get(number) in members)
    ranked = sorted(members, key=lambda member: (-owned[member], load[member], members.index(member)))
    least, extra = divmod(len(wanted), len(members))
    room = {member: least + (rank < extra) for rank, member in enumerate(ranked)}
    given: dict[int, str] = {}
    for number in wanted:
        owner = owners.get(number)
        if owner is not None and room.get(owner, 0) > 0:
            given[number] = owner
            room[owner] -= 1
    free = (member for member in ranked for _ in range(room[member]))
    return given | {number: next(free) for number in wanted if number not in given}


class TopicSpreadAssignor(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python has no type marker
    """The same two rounds as its base: what moves is first taken from its owner, and given in the next round."""

    name = "stream-engine-spread"

    def forget(self) -> None:
        """The group went on without this member: what it had may have other owners by now, and is not claimed."""
        self.member_assignment = None

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        ordered = sorted(members, key=lambda member: (member.group_instance_id or "", member.member_id))
        ids = [member.member_id for member in ordered]
        claims = {member.member_id: self.parse_member_metadata(member.metadata).partitions for member in members}
        owners = {(tp.topic, tp.partition): member for member, owned in claims.items() for tp in owned}
        target = self._target(
            cluster, {member.member_id: set(member.metadata.topics) for member in members}, ids, owners
        )
        assigned: dict[str, dict[str, list[int]]] = {member: defaultdict(list) for member in ids}
        for (topic, number), member in sorted(target.items()):
            if owners.get((topic, number), member) == member:
                assigned[member][topic].append(number)
        return {
            member: ConsumerProtocolAssignment(self.version, list(topics.items()), b"")
            for member, topics in assigned.items()
        }

    @staticmethod
    def _target(
        cluster: Any, subscriptions: Mapping[str, set[str]], ids: Sequence[str], owners: Mapping[Any, str]
    ) -> dict[tuple[str, int], str]:
        """The final owner of each partition. Numbers that the same topics have, of the same subscribers, are
        spread together."""
        shared: dict[tuple[tuple[str, ...], int], list[str]] = defaultdict(list)
        for topic in sorted(set().union(*subscriptions.values())):
            subscribers = tuple(member for member in ids if topic in subscriptions[member])
            for number in cluster.partitions_for_topic(topic) or ():
                shared[subscribers, number].append(topic)
        alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = defaultdict(list)
        for (subscribers, number), topics in shared.items():
            alike[subscribers, tuple(topics)].append(number)
        target: dict[tuple[str, int], str] = {}
        load: Counter[str] = Counter()
        for (subscribers, names), numbers in sorted(alike.items()):
            now = {n: owners[topic, n] for n in numbers for topic in reversed(names) if (topic, n) in owners}
            for number, member in spread(numbers, now, subscribers, load).items():
                target |= {(topic, number): member for topic in names}
                load[member] += 1
        return target
