"""The answers, windows and standing-query topics as others may write them: nothing there ends the consumer."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.kafka.offsets import CommitPoint
from consumers.kafka.source import SourcePartition
from consumers.registry import topic_registry as module
from consumers.registry.standing_records import StandingRecord, encode_standing
from consumers.registry.topic_registry import TopicRegistry
from consumers.wire.open_bars import OpenBar, TradeBars
from consumers.writers.answers import AnswerRecord
from consumers.writers.windows import enter
from stream_engine.config.config import Config
from stream_engine.messages import (
    AnswerChanged,
    Bar,
    RegistrySnapshot,
    Restore,
    StandingPut,
    ToEngine,
    Window,
    WindowBar,
    WindowUnits,
)
from stream_engine.standing.answer_book import AnswerBook
from stream_engine.util.skipped import Skipped
from tests.support.hostile import NESTED, mutated
from tests.support.played_producer import PlayedSpool

CONFIG = Config()
KAFKA = CONFIG.kafka
TOPIC = KAFKA.trades_topic
FEW = settings(max_examples=150, deadline=None)

ANSWER = AnswerRecord(
    "A", "q", "Is it up?", "up", None, True, class_="trend", gap=1.5, confidence=0.9, session_version=8,
    topic=KAFKA.bars_topic, partition=1, offset=7, event_time="2024-01-02T00:00:00Z",
)  # fmt: skip
WINDOW = Window(
    session="A", offset=9, timestamp_ms=1_700_000_000_000, swaps=2, units=WindowUnits(60, 10.0, 0.5, 100.0, 2),
    bars=tuple(WindowBar(Bar(60_000_000 * n, 10.0, 11.0, 9.0, 10.5, 7.0), n, 1_700_000_000_000) for n in range(3)),
)  # fmt: skip
OPEN_BAR = OpenBar(
    start=120_000_000, open=10.0, high=11.0, low=9.0, close=10.5, volume=7.0, first=None, last=9, ids={"x"}
)


def plain(message: Any) -> Any:
    """As dicts, lists and values, which can be changed."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))


def as_json(changed: Any) -> bytes:
    """JSON knows no NaN and no bytes: those become null, and text."""
    return msgspec.json.encode(changed)


@pytest.fixture
def skipped() -> Skipped:
    return Skipped(logging.getLogger(__name__))


class Registered:
    """A registry whose clients are played; ``take`` gives it one record."""

    def __init__(self) -> None:
        self.said: list[ToEngine] = []
        self.skipped = Skipped(logging.getLogger(__name__))
        self.book = AnswerBook()
        tail = SimpleNamespace(partitions=[SourcePartition(KAFKA.standing_topic, 0)])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(module, "TopicTail", lambda *_: tail)
            patched.setattr(module, "open_producer", lambda *_: None)
            letters = SimpleNamespace(spool=PlayedSpool(), send=lambda *_: None)
            patched.setattr(module, "DeadLetterWriter", lambda *_, **__: letters)
            link = SimpleNamespace(drain=lambda: [], send=self.said.append)
            patched.setattr(module, "EngineLink", lambda *_: link)
            self.registry = TopicRegistry(CONFIG, self.book, self.skipped)

    def take(self, topic: str, key: bytes | None, value: bytes | None, headers: Any = ()) -> None:
        record = SimpleNamespace(
            topic=topic, partition=0, offset=3, timestamp=-1, key=key, value=value, headers=headers
        )
        self.registry._take(record)

    def check(self) -> None:
        """What it would tell the engine, the engine can read."""
        queries = tuple(record for record, _ in self.registry._queries.values())
        snapshot = RegistrySnapshot(self.registry._offset, queries, self.book.all())
        for message in (snapshot, *self.said):
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"a|b", NESTED),
        (b"a|b", b"\xff"),
        (b"a|b", b"{}"),
        (b"\xff|b", b"{}"),
        (b"A|q", as_json(plain(ANSWER) | {"partition": -1})),
        (b"A|q", as_json(plain(ANSWER) | {"partition": 2**31})),
        (b"A|q", as_json(plain(ANSWER) | {"offset": 2**63 - 1})),
        (b"A|q", as_json(plain(ANSWER) | {"session_version": -1})),
        (b"A|q", as_json(plain(ANSWER) | {"gap": -1.0})),
        (b"A|q", as_json(plain(ANSWER) | {"confidence": 1.5})),
        (b"A|q", as_json(plain(ANSWER) | {"topic": "no topic"})),
        (b"A|q", as_json(plain(ANSWER) | {"question": "?" * 5_000})),
        (b"B|q", as_json(plain(ANSWER))),
    ],
)
def test_an_answer_that_is_none_is_skipped_and_counted(key: bytes, value: bytes) -> None:
    registered = Registered()
    registered.take(KAFKA.answers_topic, key, value)
    assert registered.skipped.counts == {"answer_unreadable": 1}
    assert registered.book.all() == ()
    registered.take(KAFKA.answers_topic, b"A|q", as_json(plain(ANSWER)))
    assert registered.book.all() == (msgspec.convert(ANSWER, AnswerChanged, from_attributes=True),)
    assert registered.skipped.counts == {"answer_unreadable": 1}


@FEW
@given(st.binary(max_size=40) | st.sampled_from([b"A|q", b"a|b"]), st.binary(max_size=60) | st.just(NESTED))
def test_no_bytes_on_the_answers_topic_end_the_registry(key: bytes, value: bytes) -> None:
    registered = Registered()
    registered.take(KAFKA.answers_topic, key, value)
    registered.check()
    assert registered.skipped.counts == {"answer_unreadable": 1}


@FEW
@given(mutated(plain(ANSWER)))
def test_no_answer_with_a_wrong_part_ends_the_registry(changed: Any) -> None:
    registered = Registered()
    registered.take(KAFKA.answers_topic, b"A|q", as_json(changed))
    registered.check()
    assert len(registered.book.all()) + sum(registered.skipped.counts.values()) == 1


def queries() -> st.SearchStrategy[bytes]:
    valid = plain(StandingRecord("EUR*", "Is it up?"))
    return st.binary(max_size=60) | mutated(valid).map(as_json) | st.just(NESTED)


@FEW
@given(
    st.binary(max_size=20) | st.sampled_from([b"q", b"x" * 400, b"\xff", b"a|b"]),
    queries(),
    st.none() | st.binary(max_size=100),
)
def test_no_record_on_the_standing_topic_ends_the_registry(key: bytes, value: bytes, token: bytes | None) -> None:
    registered = Registered()
    registered.registry._synced = ("boot", 0.0)
    registered.registry._watch.heard("boot", 0.0)
    registered.take(KAFKA.standing_topic, key, value, [("token", token)])
    registered.check()
    assert len(registered.said) == 1
    # A dead-lettered one leaves nothing behind that the next one of its id meets.
    registered.take(KAFKA.standing_topic, b"q", encode_standing(StandingPut("*", "Is it up?")))
    assert "q" in registered.registry._queries
    registered.check()


@pytest.mark.parametrize("offset", [None, b"", b"x", b"9" * 5_000, b"\xff"])
def test_no_header_of_a_dead_letter_ends_the_registry(offset: bytes | None) -> None:
    registered = Registered()
    letters = KAFKA.standing_topic + KAFKA.dead_letter_suffix
    registered.take(letters, None, None, [("topic", KAFKA.standing_topic.encode()), ("offset", offset)])
    assert registered.registry._lettered == set()
    registered.take(letters, None, None, [("topic", KAFKA.standing_topic.encode()), ("offset", b"5")])
    assert registered.registry._lettered == {5}


# --- windows ---------------------------------------------------------------------------------------------

WINDOW_KEY, OPEN_KEY = f"{TOPIC}|A".encode(), f"{TOPIC}/open|A".encode()


def changed_window(**parts: Any) -> bytes:
    return msgspec.msgpack.encode(plain(WINDOW) | parts)


def with_bar(**parts: Any) -> bytes:
    """The window with its newest bar changed."""
    names = ("time_us", "open", "high", "low", "close", "volume")
    made = plain(WINDOW)
    bar = made["bars"][-1][0]
    for name, value in parts.items():
        bar[names.index(name)] = value
    return msgspec.msgpack.encode(made)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{TOPIC}|".encode() + b"\xff\xfe", changed_window()),
        (f"{TOPIC}/open|".encode() + b"\xff\xfe", msgspec.msgpack.encode(OPEN_BAR)),
        (f"{TOPIC}|".encode(), changed_window(session="")),
        (f"{TOPIC}|B".encode(), changed_window()),
        (WINDOW_KEY, b"\x91" * 20_000),
        (WINDOW_KEY, b"\xc1"),
        (WINDOW_KEY, changed_window(session=b"\xff")),
        (WINDOW_KEY, changed_window(bars=[], units=None)),
        (WINDOW_KEY, changed_window(units=None)),
        (WINDOW_KEY, changed_window(offset=1)),
        (WINDOW_KEY, changed_window(offset=2**63 - 1)),
        (WINDOW_KEY, changed_window(swaps=-1)),
        (WINDOW_KEY, changed_window(bars=plain(WINDOW)["bars"][::-1])),
        (WINDOW_KEY, changed_window(bars=[plain(WINDOW)["bars"][0]] * 2)),
        (WINDOW_KEY, changed_window(units=[60, float("nan"), 0.5, 1.0, 2])),
        (WINDOW_KEY, changed_window(units=[60, 10.0, 0.0, 1.0, 2])),
        (WINDOW_KEY, changed_window(units=[60, 10.0, 5e-324, 1.0, 2])),
        (WINDOW_KEY, changed_window(units=[0, 10.0, 0.5, 1.0, 2])),
        (WINDOW_KEY, with_bar(close=float("inf"))),
        (WINDOW_KEY, with_bar(close=float("nan"))),
        (WINDOW_KEY, with_bar(close=50.0)),
        (WINDOW_KEY, with_bar(volume=-1.0)),
        (WINDOW_KEY, with_bar(volume=float("inf"))),
        (WINDOW_KEY, with_bar(time_us=2**60)),
        (OPEN_KEY, msgspec.msgpack.encode(plain(OPEN_BAR) | {"last": -1})),
        (OPEN_KEY, msgspec.msgpack.encode(plain(OPEN_BAR) | {"start": 2**60})),
        (OPEN_KEY, msgspec.msgpack.encode(plain(OPEN_BAR) | {"high": float("nan")})),
        (OPEN_KEY, b"\x91" * 20_000),
    ],
)
def test_a_window_that_is_none_is_skipped_and_counted(key: bytes, value: bytes, skipped: Skipped) -> None:
    found: dict[bytes, Any] = {}
    enter(found, TOPIC, key, value, skipped, 0)
    assert (found, skipped.counts) == ({}, {"window_unreadable": 1})


def test_windows_of_this_code_are_read(skipped: Skipped) -> None:
    unknown = Bar(0, 1.0, 1.0, 1.0, 1.0, float("nan"))  # no volume, and no other bar than an open one
    opened = Window(
        session="A",
        offset=0,
        timestamp_ms=-1,
        swaps=0,
        units=None,
        bars=(WindowBar(unknown, 0, -1),),
        still_open=True,
    )
    for key, stored in ((WINDOW_KEY, WINDOW), (WINDOW_KEY, opened), (OPEN_KEY, OPEN_BAR)):
        found: dict[bytes, Any] = {}
        enter(found, TOPIC, key, msgspec.msgpack.encode(stored), skipped, 0)
        assert msgspec.msgpack.encode(found[key]) == msgspec.msgpack.encode(stored)
    assert skipped.counts == {}


@FEW
@given(
    st.sampled_from([WINDOW_KEY, OPEN_KEY]) | st.binary(max_size=9).map(OPEN_KEY.__add__),
    st.binary(max_size=60)
    | (mutated(plain(WINDOW)) | mutated(plain(OPEN_BAR))).map(msgspec.msgpack.encode)
    | st.just(NESTED),
)
def test_whatever_lies_in_the_windows_topic_can_be_restored_or_is_skipped(key: bytes, value: bytes) -> None:
    skipped = Skipped(logging.getLogger(__name__))
    found: dict[bytes, Any] = {}
    enter(found, TOPIC, key, value, skipped, 0)
    assert len(found) + sum(skipped.counts.values()) == 1
    windows = tuple(window for window in found.values() if isinstance(window, Window))
    bars = TradeBars(60, True, "start")
    bars.restore(
        windows, dict.fromkeys("A", opened_bar) if isinstance(opened_bar := found.get(key), OpenBar) else {}
    )
    assert bars.floor(10) <= 10
    message = Restore(TOPIC, 0, 1, windows)
    msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=Restore)


# --- the metadata of offset commits ----------------------------------------------------------------------


@FEW
@given(
    st.none()
    | st.text(max_size=60)
    | st.builds(str.__mul__, st.sampled_from(["[", "9", '{"floor":']), st.sampled_from([1_100, 4_400]))
    | mutated({"floor": 3}).map(lambda changed: as_json(changed).decode(errors="replace"))
)
def test_no_metadata_of_a_commit_raises(metadata: str | None) -> None:
    assert 0 <= CommitPoint.read(5, metadata).floor <= 5
