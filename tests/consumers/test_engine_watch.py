"""Presence of the engine, on a clock of numbers."""

from __future__ import annotations

from consumers.engine_watch import EngineWatch, Presence

LINK = b"1"


def test_hello_every_second_whatever_is_heard() -> None:
    watch = EngineWatch(0.0)
    assert [t for t in (0.0, 0.5, 1.0, 1.2, 2.0) if watch.hello_due(t)] == [0.0, 1.0, 2.0]
    assert watch.welcome("a", 10, LINK, 2.5)
    assert watch.presence is Presence.WELCOMED
    assert watch.credits == 10
    assert not watch.hello_due(2.9)
    watch.heard("a", 3.1)
    assert watch.hello_due(3.2)


def test_quiet_times_are_bridged_by_hellos_that_find_a_restart() -> None:
    watch = EngineWatch(0.0)
    watch.welcome("a", 10, LINK, 0.0)
    assert watch.hello_due(1.5)
    assert not watch.welcome("a", 10, LINK, 1.6)  # the same engine: nothing is started again
    assert watch.welcome("b", 20, LINK, 3.0)
    assert (watch.boot_id, watch.credits) == ("b", 20)


def test_a_new_boot_in_any_message_needs_a_welcome_first() -> None:
    watch = EngineWatch(0.0)
    watch.welcome("a", 10, LINK, 0.0)
    assert not watch.heard("a", 0.1)
    assert watch.heard("b", 0.2)
    assert watch.presence is Presence.ABSENT
    assert watch.hello_due(0.2)
    assert not watch.welcome("b", 10, LINK, 0.3)  # its partitions were started over when it was first heard
    assert watch.presence is Presence.WELCOMED


def test_the_same_engine_on_another_connection_knows_nothing_of_what_was_on_its_way() -> None:
    watch = EngineWatch(0.0)
    watch.welcome("a", 10, LINK, 0.0)
    assert not watch.welcome("a", 10, LINK, 1.0)
    assert watch.welcome("a", 10, b"2", 2.0)
    assert watch.presence is Presence.WELCOMED
    assert not watch.welcome("a", 10, b"2", 3.0)
    watch.check(3.0 + 10.0)
    assert watch.welcome("a", 10, b"3", 4.0 + 10.0)
    assert watch.presence is Presence.WELCOMED


def test_silence_is_noticed_once_and_ends_with_any_message() -> None:
    watch = EngineWatch(0.0)
    watch.welcome("a", 10, LINK, 0.0)
    assert not watch.check(10.0 - 0.1)
    assert watch.check(10.0)
    assert not watch.check(10.0 + 1)
    assert watch.presence is Presence.SILENT
    assert not watch.heard("a", 10.0 + 2)
    assert watch.presence is Presence.WELCOMED


def test_after_a_long_silence_the_same_engine_counts_as_new() -> None:
    watch = EngineWatch(0.0)
    watch.welcome("a", 10, LINK, 0.0)
    watch.check(10.0)
    assert not watch.relink_due(60.0 - 1)
    assert watch.relink_due(60.0)
    assert not watch.relink_due(60.0 + 1)
    assert watch.presence is Presence.ABSENT
    assert watch.welcome("a", 10, LINK, 60.0 + 2)
