"""Policy on offsets: what is committed, and where a rebuild starts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.kafka.offsets import CommitPoint, OffsetResetRequired, SettledOffsets, plan_rebuild


def test_nothing_is_committable_before_an_acknowledgement() -> None:
    settled = SettledOffsets(start=5, live_from=5)
    assert settled.point == CommitPoint(5, 5)


def test_an_acknowledgement_moves_the_commit_point_and_its_floor() -> None:
    settled = SettledOffsets(5, 5)
    settled.acknowledge(last=11, floor=7)
    assert settled.point == CommitPoint(12, 7)


def test_a_replay_does_not_take_the_commit_back() -> None:
    settled = SettledOffsets(start=10, live_from=100)
    settled.acknowledge(last=49, floor=20)
    assert settled.point == CommitPoint(100, 20)


@pytest.mark.parametrize("last", [10, 20])
def test_a_late_acknowledgement_changes_nothing(last: int) -> None:
    settled = SettledOffsets(0, 0)
    settled.acknowledge(20, 15)
    settled.acknowledge(last, 2)
    assert settled.point == CommitPoint(21, 15)


def test_a_floor_counts_once_all_of_its_acknowledgement_is_settled() -> None:
    """It may stand on windows that came with it, and are not confirmed yet."""
    settled = SettledOffsets(5, 5)
    settled.hold(10)
    settled.acknowledge(last=11, floor=7)
    settled.acknowledge(last=14, floor=9)
    assert settled.point == CommitPoint(10, 5)
    settled.hold(13)
    settled.release(10)
    assert settled.point == CommitPoint(13, 7)
    settled.release(13)
    assert settled.point == CommitPoint(15, 9)


def test_an_unconfirmed_dead_letter_holds_the_commit_at_its_record() -> None:
    settled = SettledOffsets(0, 0)
    settled.hold(4)
    settled.hold(4)  # two bars of one record
    settled.hold(7)
    settled.acknowledge(9, 9)
    assert settled.point.offset == 4
    settled.release(4)
    assert settled.point.offset == 4
    settled.release(4)
    assert settled.point.offset == 7
    settled.release(7)
    assert settled.point.offset == 10
    assert settled.awaiting == 0


def test_a_release_that_was_not_awaited_is_an_error() -> None:
    with pytest.raises(ValueError, match="offset 3"):
        SettledOffsets(0, 0).release(3)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_commit_point_is_the_lowest_unsettled_record_and_monotone(
    records: list[tuple[int, bool]], chance: object
) -> None:
    """Any interleaving of acknowledgements and confirmations, offsets with gaps."""
    settled = SettledOffsets(0, 0)
    offsets, offset = [], 0
    for gap, is_bad in records:
        offset += gap
        offsets.append((offset, is_bad))
        offset += 1
    unacknowledged = [o for o, _ in offsets]
    unconfirmed = [o for o, is_bad in offsets if is_bad]
    for held in unconfirmed:
        settled.hold(held)
    before = settled.point.offset
    while unacknowledged or unconfirmed:
        if unacknowledged and (not unconfirmed or chance.random() < 0.5):  # type: ignore[attr-defined]
            settled.acknowledge(unacknowledged.pop(0), 0)
        else:
            settled.release(unconfirmed.pop(chance.randrange(len(unconfirmed))))  # type: ignore[attr-defined]
        open_offsets = unacknowledged + unconfirmed
        assert settled.point.offset <= min(open_offsets, default=offset)
        assert settled.point.offset >= before
        # Contiguous: nothing settled lies between the commit point and the first open record, except gaps.
        if open_offsets:
            first_open = min(open_offsets)
            assert not [o for o, _ in offsets if settled.point.offset <= o < first_open]
        before = settled.point.offset
    assert settled.point.offset == offset


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_metadata_round_trip(offset: int, back: int) -> None:
    point = CommitPoint(offset, max(0, offset - back))
    assert CommitPoint.read(offset, point.metadata()) == point


def test_the_metadata_is_as_it_always_was() -> None:
    assert CommitPoint(100, 40).metadata() == '{"floor":40}'


@pytest.mark.parametrize(
    "metadata", ["", None, "made by hand", "[]", '{"floor":"3"}', '{"floor":-1}', '{"floor":11}', '{"floor":true}']
)
def test_metadata_of_another_tool_means_no_floor(metadata: str | None) -> None:
    assert CommitPoint.read(10, metadata) == CommitPoint(10, 10)


def test_a_rebuild_starts_at_the_floor() -> None:
    plan = plan_rebuild(CommitPoint(100, 40), 0, 120, 1000, "earliest")
    assert (plan.start, plan.live_from, plan.warning, plan.incomplete) == (40, 100, None, False)
    assert plan.serve_from == 120  # an earlier life may have been as far as that
    assert plan.keeps_windows
    assert not plan.chosen


@pytest.mark.parametrize("offset", [10, 120])
def test_a_commit_at_either_end_of_the_log_is_usable(offset: int) -> None:
    plan = plan_rebuild(CommitPoint(offset, offset), 10, 120, 1000, "fail")
    assert (plan.start, plan.live_from, plan.warning, plan.chosen) == (offset, offset, None, False)


@pytest.mark.parametrize(
    ("beginning", "limit", "start", "cause"), [(0, 10, 90, "max_rebuild_records"), (60, 1000, 60, "retention")]
)
def test_a_bounded_rebuild_says_so(beginning: int, limit: int, start: int, cause: str) -> None:
    plan = plan_rebuild(CommitPoint(100, 40), beginning, 120, limit, "fail")
    assert (plan.start, plan.live_from) == (start, 100)
    assert f"({cause})" in (plan.warning or "")
    assert plan.incomplete


UNUSABLE = {
    None: "no committed offset; ",
    CommitPoint(3, 1): "committed offset 3 has aged out: 7 records are gone; ",
    CommitPoint(500, 400): "committed offset 500 lies behind the end 120: the topic was cut or made anew; ",
}


@pytest.mark.parametrize("committed", UNUSABLE)
@pytest.mark.parametrize(("policy", "start"), [("earliest", 10), ("latest", 120)])
def test_an_unusable_commit_is_the_configured_choice(
    committed: CommitPoint | None, policy: str, start: int
) -> None:
    plan = plan_rebuild(committed, 10, 120, 1000, policy)  # type: ignore[arg-type]
    assert (plan.start, plan.live_from) == (start, start)
    assert plan.warning == f"{UNUSABLE[committed]}kafka.offset_reset = {policy}: starts at {start}"
    assert plan.chosen  # so it is committed
    assert plan.serve_from == 120
    # Only what has aged out leaves no doubt that the windows are of this topic.
    assert plan.keeps_windows is (committed == CommitPoint(3, 1))
    assert plan.incomplete is (committed is not None)  # a topic read for the first time misses nothing


@pytest.mark.parametrize("committed", UNUSABLE)
def test_fail_says_what_to_do(committed: CommitPoint | None) -> None:
    with pytest.raises(OffsetResetRequired, match="kafka-consumer-groups --reset-offsets"):
        plan_rebuild(committed, 10, 120, 1000, "fail")


@pytest.mark.parametrize("offset", [0, 7])
def test_fail_has_nothing_to_ask_about_an_empty_log(offset: int) -> None:
    plan = plan_rebuild(None, offset, offset, 1000, "fail")
    assert (plan.start, plan.live_from, plan.incomplete) == (offset, offset, False)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 100), st.integers(0, 100), st.integers(1, 50))
def test_a_plan_lies_within_the_log_and_its_bound(
    offset: int, floor: int, beginning: int, size: int, limit: int
) -> None:
    end = beginning + size
    plan = plan_rebuild(CommitPoint(offset, min(floor, offset)), beginning, end, limit, "earliest")
    assert beginning <= plan.start <= plan.live_from <= end
    assert plan.live_from - plan.start <= limit
