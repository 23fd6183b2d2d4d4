"""Trades to bars: which bars, in which records, whatever the polls were; late and repeated trades; the floor."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from msgspec.msgpack import decode, encode

from consumers.wire import open_bars as module
from consumers.wire.open_bars import OpenBar, TradeBars
from consumers.wire.reasons import RawRecord, Reason
from consumers.wire.records import ParsedRecord, parse_items
from consumers.wire.trades import TRADES
from stream_engine.messages import Bar, Record, Window, WindowBar, WindowUnits

START_S = 1_700_000_040  # a whole minute
UNITS = WindowUnits(60, 1.0, 1.0, 1.0, 1)
MINUTE_US = 60_000_000


def raw(offset: int, value: Any, key: str = "A") -> RawRecord:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return RawRecord("market.trades", 0, offset, 1_800_000_000_000, key.encode(), content)


def trade(second: float, price: float, size: float | None = 1.0, **more: Any) -> dict[str, Any]:
    return {"t": START_S + second, "p": price, "q": size, **more}


def fold(bars: TradeBars, *raws: RawRecord) -> list[ParsedRecord]:
    return bars.fold(parse_items(raws, TRADES))


def shown(parsed: list[ParsedRecord]) -> list[tuple[int, list[Bar]]]:
    return [(item.record.offset, list(item.record.bars)) for item in parsed if item.record and item.record.bars]


def bar(minute: int, *values: float) -> Bar:
    return Bar(START_S * 1_000_000 + minute * MINUTE_US, *values)


def test_a_bar_closes_when_a_later_trade_comes() -> None:
    bars = TradeBars(60, False, "start")
    first = fold(bars, raw(3, trade(0, 10)), raw(4, trade(5, 12, 2)), raw(5, trade(59.9, 9, 0.5)))
    assert shown(first) == []
    assert [(item.dead, item.repeated) for item in first] == [((), False)] * 3
    assert shown(fold(bars, raw(6, trade(60, 11)))) == [(6, [bar(0, 10, 12, 9, 9, 3.5)])]
    # Minutes without a trade make no bar.
    assert shown(fold(bars, raw(7, trade(300, 8)))) == [(7, [bar(1, 11, 11, 11, 11, 1)])]


def test_the_last_trade_of_each_open_bar_asks_whether_its_key_may_be_fed_by_trades() -> None:
    bars = TradeBars(60, False, "start")
    first = fold(bars, raw(3, trade(0, 10)), raw(4, trade(1, 1), "B"), raw(5, trade(5, 12)), raw(6, b"bad"))
    asked = {item.raw.offset: item.record for item in first}
    claims = [Record(key, offset, 1_800_000_000_000, ()) for key, offset in (("B", 4), ("A", 5))]
    assert asked == {3: None, 4: claims[0], 5: claims[1], 6: None}
    assert [record.offset for record in first[2].folded] == [3]
    second = fold(bars, raw(7, trade(60, 11)), raw(8, trade(61, 12)))
    assert [item.record.bars != () for item in second if item.record] == [True, False]  # the bar; the next one's


def test_an_open_bar_is_shown_at_its_last_trade() -> None:
    bars = TradeBars(60, True, "start")
    first = fold(bars, raw(3, trade(0, 10)), raw(4, trade(5, 12, 2)), raw(5, trade(1, 1), "B"))
    assert shown(first) == [(4, [bar(0, 10, 12, 10, 12, 3)]), (5, [bar(0, 1, 1, 1, 1, 1)])]
    assert [record.offset for record in first[1].folded] == [3]
    second = fold(bars, raw(6, trade(50, 9)), raw(7, trade(61, 11)))
    assert shown(second) == [(6, [bar(0, 10, 12, 9, 9, 4)]), (7, [bar(1, 11, 11, 11, 11, 1)])]


def test_the_time_stamp_may_be_the_bars_end() -> None:
    bars = TradeBars(60, True, "end")
    assert shown(fold(bars, raw(0, trade(0, 10)))) == [(0, [bar(1, 10, 10, 10, 10, 1)])]


def test_an_id_that_is_the_symbol_repeats_no_trade() -> None:
    bars = TradeBars(60, True, "start")
    parsed = fold(bars, raw(0, trade(0, 10, id="A")), raw(1, trade(1, 12, id="A")))
    assert shown(parsed) == [(1, [bar(0, 10, 12, 10, 12, 2)])]


def test_a_trade_a_day_ahead_of_its_record_is_refused() -> None:
    bars = TradeBars(60, True, "start")
    stamp = {"timestamp_ms": START_S * 1000}
    ahead = replace(raw(0, trade(86_401, 10)), **stamp)
    (parsed,) = fold(bars, ahead)
    assert [letter.reason for letter in parsed.dead] == [Reason.TIME_IN_FUTURE]
    assert shown(fold(bars, replace(raw(1, trade(86_399, 11)), **stamp)))


def test_times_before_the_epoch_have_bars_too() -> None:
    bars = TradeBars(60, True, "start")
    (found,) = shown(fold(bars, raw(0, {"t": -30, "p": 5})))
    assert found[1][0].time_us == -MINUTE_US


def test_a_record_of_several_trades_is_one_record() -> None:
    bars = TradeBars(60, False, "start")
    (folded,) = fold(bars, raw(0, [trade(130, 3), trade(0, 1), trade(65, 2)]))  # newest first, as some vendors do
    assert folded.record is not None
    assert [found.close for found in folded.record.bars] == [1, 2]
    assert shown(fold(bars, raw(1, trade(190, 4)))) == [(1, [bar(2, 3, 3, 3, 3, 1)])]


def test_an_absent_size_is_no_volume() -> None:
    bars = TradeBars(60, True, "start")
    ((_, (found,)),) = shown(fold(bars, raw(0, trade(0, 10, None)), raw(1, trade(1, 10, None))))
    assert math.isnan(found.volume)
    ((_, (found,)),) = shown(fold(bars, raw(2, trade(2, 10, 0)), raw(3, trade(3, 10, 2))))
    assert found.volume == 2


def test_a_trade_older_than_the_open_bar_is_late() -> None:
    bars = TradeBars(60, False, "start")
    parsed = fold(bars, raw(0, trade(60, 10)), raw(1, trade(59, 5)), raw(2, trade(59, 5), "B"))
    assert [[letter.reason for letter in item.dead] for item in parsed] == [[], [Reason.LATE], []]
    assert parsed[1].dead[0].value == parsed[1].raw.value
    (mixed,) = fold(bars, raw(3, [trade(0, 5), trade(61, 11)]))
    assert [(letter.reason, letter.bar) for letter in mixed.dead] == [(Reason.LATE, 0)]
    assert shown(fold(bars, raw(4, trade(120, 1)))) == [(4, [bar(1, 10, 11, 10, 11, 2)])]


def test_repeats_are_told_by_their_id_never_by_their_value() -> None:
    bars = TradeBars(60, False, "start")
    same = [raw(offset, trade(0, 10)) for offset in range(3)]
    named = [raw(3, trade(1, 10, trade_id=7)), raw(4, trade(1, 10, trade_id="7")), raw(5, trade(1, 10, id=8))]
    parsed = [*fold(bars, *same, *named), *fold(bars, raw(6, trade(2, 10, id=8)))]
    assert [item.raw.offset for item in parsed if item.repeated] == [4, 6]
    assert shown(fold(bars, raw(7, trade(60, 1)))) == [(7, [bar(0, 10, 10, 10, 10, 5)])]


def test_a_bar_of_many_trades_is_saved_small_and_as_it_was() -> None:
    trades = [raw(n, trade(n / 1000, 10 + n % 7, id=f"{n:036x}{'x' * (n % 3)}")) for n in range(30_000)]
    bars = TradeBars(60, False, "start", quiet_records=1_000)
    for first in range(0, 30_000, 5_000):
        fold(bars, *trades[first : first + 5_000])
    ((_, saved),) = bars.due(30_000)
    assert len(encode(saved)) < 200_000
    again = TradeBars(60, False, "start")
    again.restore((), {"A": decode(encode(saved), type=OpenBar)})
    # Read again: known by their offsets, also those whose ids are not saved. Sent again: by their ids.
    repeated = [raw(30_000 + n, trade(31, 99, id=f"{n:036x}{'x' * (n % 3)}")) for n in range(29_000, 30_000)]
    for fold_of in (bars, again):
        parsed = fold(fold_of, *repeated)
        assert all(item.repeated for item in parsed[:-1])
    assert all(item.repeated for item in fold(again, *trades[:500]))
    total = 30_000.0
    closed = [bar(0, 10, 16, 10, 10 + 29_999 % 7, total)]
    assert [shown(fold(fold_of, raw(70_000, trade(60, 1)))) for fold_of in (bars, again)] == [
        [(70_000, closed)]
    ] * 2


@pytest.mark.parametrize("size", [1, 3, 50])
def test_ids_are_forgotten_alike_whatever_the_polls_were(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "REMEMBERED_IDS", 4)
    names = [0, 1, 2, 3, 0, 4, 0, 1, 5, 4, 0]
    bars = TradeBars(60, False, "start")
    trades = [raw(n, trade(1, 10, id=name)) for n, name in enumerate(names)]
    parsed = [
        folded for first in range(0, len(trades), size) for folded in fold(bars, *trades[first : first + size])
    ]
    # 4 drives out 0, which drives out 1, and so on; 4 at offset 9 is among the newest four still.
    assert [item.raw.offset for item in parsed if item.repeated] == [4, 9, 10]


def test_a_bar_saved_by_an_earlier_version_is_read() -> None:
    old = {"start": START_S * 1_000_000, "open": 1.0, "high": 1.0, "low": 1.0, "close": 1.0, "volume": 1.0}
    ids = [*map(str, range(5_000)), "long" * 20]  # an earlier version saved all of them, in no order
    saved = encode({**old, "first": None, "last": 9, "ids": ids})
    bars = TradeBars(60, False, "start")
    bars.restore((), {"A": decode(saved, type=OpenBar)})
    again = [raw(10 + n, trade(1, 1, id=ids[-1 - n])) for n in range(9)]
    parsed = fold(bars, raw(9, trade(1, 1, id="new")), *again)
    assert all(item.repeated for item in parsed)
    assert shown(fold(bars, raw(70, trade(60, 1)))) == [(70, [bar(0, 1, 1, 1, 1, 1)])]


def test_bad_trades_are_dead_letters() -> None:
    bars = TradeBars(60, False, "start")
    values = [b"{", {"t": START_S}, trade(0, math.inf), trade(0, 1, -1), {"t": "x", "p": 1}, [], 3]
    reasons = [item.dead[0].reason for item in fold(bars, *(raw(i, value) for i, value in enumerate(values)))]
    assert reasons == [
        Reason.NOT_JSON,
        Reason.MISSING_FIELD,
        Reason.NOT_JSON,
        Reason.NEGATIVE_VOLUME,
        Reason.TIME_INVALID,
        Reason.EMPTY_LIST,
        Reason.NOT_A_TRADE,
    ]


@pytest.mark.parametrize("open_bar", [False, True])
def test_the_open_bar_of_a_quiet_key_is_saved_and_goes_on(open_bar: bool) -> None:
    bars = TradeBars(60, open_bar, "start", quiet_records=20)
    fold(bars, raw(0, trade(0, 10, id=1)), *(raw(1 + n, trade(60 * n, 1), "B") for n in range(30)))
    assert (bars.due(20), bars.floor(30)) == ([], 0)
    ((key, bar_of_a),) = bars.due(30)
    stored = encode(bar_of_a)
    assert key == "A"
    assert bars.due(30) == []
    assert bars.floor(30) >= 29  # of B only
    again = TradeBars(60, open_bar, "start", quiet_records=20)
    again.restore([], {key: decode(stored, type=OpenBar)})
    found = []
    for fold_of in (bars, again):
        parsed = fold(fold_of, raw(31, trade(2, 10, id=1)), raw(32, trade(3, 12)))
        assert parsed[0].repeated
        parsed += fold(fold_of, raw(33, trade(61, 7)))
        found.append({bar.time_us: bar for _, shown_bars in shown(parsed) for bar in shown_bars})
    assert again.floor(33) == (33 if open_bar else 32)
    assert found[0] == found[1]
    assert found[0][bar(0, 0, 0, 0, 0, 0).time_us] == bar(0, 10, 12, 10, 12, 2)


def test_a_saved_bar_is_forgotten_once_its_session_has_a_newer_one() -> None:
    old = OpenBar(
        start=START_S * 1_000_000, open=1.0, high=1.0, low=1.0, close=1.0, volume=1.0, first=None, last=0
    )
    newer = Window(
        session="A", offset=5, timestamp_ms=0, swaps=0, units=UNITS, bars=(WindowBar(bar(1, 2, 2, 2, 2, 2), 5, 0),)
    )
    bars = TradeBars(60, True, "start")
    bars.restore([newer], {"A": old})
    (late, new) = fold(bars, raw(6, trade(1, 9)), raw(7, trade(61, 9)))
    assert late.dead[0].reason == Reason.LATE
    assert new.record is not None


def stream(seed: int, count: int = 300) -> list[RawRecord]:
    """Three keys, one of them quiet; late, repeated, bad and unsized trades."""
    chance = random.Random(seed)
    clock = dict.fromkeys("ABC", 0.0)
    raws = []
    for offset in range(count):
        key = chance.choice("AAAAABBBC" if offset % 100 < 90 else "AB")
        clock[key] += chance.expovariate(1 / 12)
        at = clock[key] - (90 if chance.random() < 0.05 else 0)
        size = None if chance.random() < 0.1 else round(chance.expovariate(1.3), 7)
        sent: Any = trade(at, round(100 + chance.gauss(0, 3), 3), size)
        if chance.random() < 0.1:
            sent["id"] = chance.randint(0, 3)
        if chance.random() < 0.05:
            sent = [sent, trade(at + 1, 100.5, 0.1)]
        raws.append(raw(offset, sent if chance.random() > 0.02 else b"bad", key))
    return raws


def polled(bars: TradeBars, raws: list[RawRecord], chance: random.Random) -> list[ParsedRecord]:
    parsed: list[ParsedRecord] = []
    at = 0
    while at < len(raws):
        size = chance.choice((1, 2, 7, 50))
        parsed += fold(bars, *raws[at : at + size])
        at += size
    return parsed


@pytest.mark.parametrize("seed", range(5))
def test_closed_bars_do_not_depend_on_the_polls(seed: int) -> None:
    raws = stream(seed)
    whole = fold(TradeBars(60, False, "start"), *raws)
    parts = polled(TradeBars(60, False, "start"), raws, random.Random(seed))
    assert shown(parts) == shown(whole)
    assert [(item.raw, item.dead, item.bars_seen, item.repeated) for item in parts] == [
        (item.raw, item.dead, item.bars_seen, item.repeated) for item in whole
    ]
    assert len(shown(whole)) > 40


class Session:
    """What an engine does with bar records: equal times replace, known offsets are skipped."""

    def __init__(self) -> None:
        self.bars: dict[int, Bar] = {}
        self.offset = -1
        self.floor: int | None = None

    def window(self, name: str) -> Window:
        self.floor = None
        stored = tuple(WindowBar(bar, 0, 0) for _, bar in sorted(self.bars.items())[-40:])
        return Window(session=name, offset=self.offset, timestamp_ms=0, swaps=0, units=UNITS, bars=stored)


def apply(sessions: dict[str, Session], parsed: list[ParsedRecord]) -> None:
    for item in parsed:
        if item.record is None or not item.record.bars:
            continue
        session = sessions.setdefault(item.record.key, Session())
        if item.record.offset <= session.offset:
            continue
        session.bars |= {bar.time_us: bar for bar in item.record.bars}
        session.offset = item.record.offset
        if session.floor is None:
            session.floor = item.record.offset


def late_ones(parsed: list[ParsedRecord]) -> list[int]:
    return [item.raw.offset for item in parsed if item.dead and item.dead[0].reason == Reason.LATE]


@pytest.mark.parametrize("open_bar", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_restart_at_the_floor_gives_the_same_bars(seed: int, open_bar: bool) -> None:
    """The consumer and the engine lose everything at random points; windows and floors are all there is."""
    raws, chance = stream(seed), random.Random(seed)
    straight: dict[str, Session] = {}
    whole = polled(TradeBars(60, open_bar, "end"), raws, random.Random(-seed))
    apply(straight, whole)

    stored: dict[str, Window] = {}
    saved: dict[str, bytes] = {}
    committed = floor = replayed = lives = 0
    sessions: dict[str, Session] = {}
    late = []
    while committed < len(raws):
        lives, replayed, needed = lives + 1, replayed + committed - floor, 0
        bars, sessions = TradeBars(60, open_bar, "end", quiet_records=5), {}
        bars.restore(stored.values(), {key: decode(value, type=OpenBar) for key, value in saved.items()})
        for name, window in stored.items():
            session = sessions[name] = Session()
            session.bars = {stored_bar.bar.time_us: stored_bar.bar for stored_bar in window.bars}
            session.offset = window.offset
        apply(sessions, polled(bars, raws[floor:committed], chance))
        ahead = committed
        for _ in range(chance.randint(1, 12)):
            parsed = fold(bars, *raws[ahead : ahead + chance.randint(1, 9)])
            apply(sessions, parsed)
            ahead += len(parsed)
            saved |= {key: encode(bar) for key, bar in bars.due(needed)}
            if chance.random() < 0.7:  # else it dies with this uncommitted
                committed = ahead
                late += late_ones(parsed)
                for name, session in sessions.items():
                    if session.floor is not None and chance.random() < 0.2:
                        stored[name] = session.window(name)
                needed = min([s.floor for s in sessions.values() if s.floor is not None] + [committed])
                floor = bars.floor(needed)
                assert floor <= needed
            else:
                if sessions and chance.random() < 0.5:  # a window that the commit did not follow
                    name = chance.choice(sorted(sessions))
                    stored[name] = sessions[name].window(name)
                break

    assert lives > 5
    assert late == late_ones(whole)
    for name, session in straight.items():
        newest = sorted(session.bars.items())[-20:]
        assert sorted(sessions[name].bars.items())[-20:] == newest
    assert replayed / lives < 100


def test_a_late_trade_names_its_time() -> None:
    bars = TradeBars(60, False, "start")
    late = fold(bars, raw(0, trade(60, 1)), raw(1, trade(59.5, 1)))[1]
    assert late.dead[0].detail == "older than the open bar of 'A': trade time 2023-11-14T22:14:59.500000Z"
