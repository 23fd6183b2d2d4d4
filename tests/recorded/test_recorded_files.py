"""What an earlier version wrote, through today's readers: every kind of record and file, without a broker."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_engine.config.rules import ConfigError
from tests.recorded import house
from tests.recorded.recording import CALIBRATION, COMMITTED, RETIRED, RISK, Recording, WrittenRecord


@pytest.fixture(params=Recording.all(), ids=str)
def recording(request: pytest.FixtureRequest) -> Recording:
    param: Recording = request.param
    return param


def topic(recording: Recording, name: str) -> str:
    return str(recording.settings[f"STREAM_ENGINE_KAFKA_{name}_TOPIC"])


def raws(recording: Recording, name: str) -> Iterator[house.RawRecord]:
    for record in recording.records(topic(recording, name)):
        yield house.RawRecord(
            record.topic, record.partition, record.offset, record.timestamp, record.key, record.value
        )


def dead_letters(recording: Recording, name: str) -> dict[tuple[int, int, int | None], str]:
    """Their reasons, by partition, offset and index in the list."""
    named = [dict(record.headers) for record in recording.records(f"{topic(recording, name)}.dlq")]
    return {
        (
            int(headers["partition"]),
            int(headers["offset"]),
            int(headers["bar"]) if "bar" in headers else None,
        ): headers["reason"].decode()
        for headers in named
    }


def fed_by(recording: Recording, name: str) -> list[Any]:
    """What the service said of the sessions that this topic feeds."""
    begin = topic(recording, name) + "/"
    return [row for row in recording.state["sessions"] if all(place.startswith(begin) for place in row["offsets"])]


def bars_of(records: Iterable[house.Record | None]) -> dict[tuple[str, int], Any]:
    """By key and time; the last one counts."""
    return {
        (record.key, bar.time_us): msgspec.to_builtins(bar) for record in records if record for bar in record.bars
    }


def assert_kept(written: Any, found: Any, where: str = "$") -> None:
    """Everything that was written is in what was read. What was added since may be there as well."""
    if isinstance(written, dict):
        assert isinstance(found, dict), where
        for name, value in written.items():
            assert name in found, f"{where}.{name} is lost"
            assert_kept(value, found[name], f"{where}.{name}")
    elif isinstance(written, list):
        assert isinstance(found, list | tuple), where
        assert len(found) >= len(written), where
        for at, value in enumerate(written):
            assert_kept(value, found[at], f"{where}[{at}]")
    elif isinstance(found, float) and math.isnan(found):
        assert written is None or math.isnan(written), where  # over HTTP a NaN is null
    else:
        assert found == written, where


def test_the_recording_holds_every_kind_of_thing(recording: Recording) -> None:
    """Else the tests below would say little."""
    records = recording.records()
    keys = {record.key for record in recording.records(topic(recording, "WINDOWS"))}
    assert any(b"/open|" in (key or b"") for key in keys), "an open bar"
    for name in ("WINDOWS", "STANDING", "ANSWERS"):
        values = {record.value is None for record in recording.records(topic(recording, name))}
        assert values == {True, False}, f"{name}: values and deletions"
    assert all(dead_letters(recording, name) for name in ("BARS", "TRADES", "STANDING"))
    assert any(row["swaps"] for row in recording.state["sessions"]), "a swap"
    assert {row["state"] for row in recording.state["sessions"]} >= {"LIVE", "WARMING_UP"}
    assert any(json.loads(place["metadata"])["floor"] < place["offset"] for place in recording.json(COMMITTED))
    risk = recording.json(RISK)
    states = [
        kept_class for gates in risk.values() for classes in gates.values() for kept_class in classes.values()
    ]
    assert any(kept["state"] == "RAISED" and kept["points"] and kept["checks"] for kept in states)
    assert len({(record.topic, record.partition) for record in records}) > 8
    size = sum(file.stat().st_size for file in recording.folder.iterdir())
    assert size < 300 * 1024


def test_offsets_are_gapless_so_that_a_replay_has_the_same(recording: Recording) -> None:
    found: dict[tuple[str, int], list[int]] = {}
    for record in recording.records():
        found.setdefault((record.topic, record.partition), []).append(record.offset)
    assert all(offsets == list(range(len(offsets))) for offsets in found.values())


def test_a_line_of_a_recording_is_the_record() -> None:
    record = WrittenRecord("t", 1, 7, 99, b"\xff\x00", None, (("name", b"value"), ("raw", b"\x80")))
    assert WrittenRecord.read(record.line()) == record


def test_offset_metadata_names_its_floor(recording: Recording) -> None:
    for point in recording.json(COMMITTED):
        read = house.CommitPoint.read(point["offset"], point["metadata"])
        assert (read.offset, read.floor) == (point["offset"], json.loads(point["metadata"])["floor"])


def test_bars_and_their_dead_letters(recording: Recording) -> None:
    parsed = house.parse_records(list(raws(recording, "BARS")))
    refused = {
        (letter.raw.partition, letter.raw.offset, letter.bar): str(letter.reason)
        for record in parsed
        for letter in record.dead
    }
    of_the_engine = {"late", "second_source"}
    written = dead_letters(recording, "BARS")
    assert refused == {place: reason for place, reason in written.items() if reason not in of_the_engine}
    late = [place for place, reason in written.items() if reason in of_the_engine]
    bars = bars_of(
        outcome.record for outcome in parsed if (outcome.raw.partition, outcome.raw.offset, None) not in late
    )
    sessions = fed_by(recording, "BARS")
    assert len(sessions) > 3
    for session in sessions:
        assert session["last_bars"]
        for bar in session["last_bars"]:
            assert_kept(bar, bars[session["id"], bar[0]])


def test_trades_their_bars_and_dead_letters(recording: Recording) -> None:
    settings = house.Config.load(env=recording.settings).kafka
    folding = house.TradeBars(settings.bar_seconds, settings.open_bar, settings.bar_time)
    parsed = folding.fold(house.parse_items(list(raws(recording, "TRADES")), house.TRADES))
    refused = {
        (letter.raw.partition, letter.raw.offset, letter.bar): str(letter.reason)
        for p in parsed
        for letter in p.dead
    }
    written = dead_letters(recording, "TRADES")
    assert refused == {place: reason for place, reason in written.items() if reason != "second_source"}
    bars = bars_of(outcome.record for outcome in parsed)
    sessions = fed_by(recording, "TRADES")
    assert len(sessions) > 1
    for session in sessions:
        for bar in session["last_bars"]:
            assert_kept(bar, bars[session["id"], bar[0]])


def test_windows_and_open_bars(recording: Recording) -> None:
    seen = 0
    for record in recording.records(topic(recording, "WINDOWS")):
        if record.value is not None:
            kind = house.OpenBar if b"/open|" in (record.key or b"") else house.Window
            read = msgspec.msgpack.decode(record.value, type=kind)
            assert_kept(msgspec.msgpack.decode(record.value), msgspec.to_builtins(read))
            seen += kind is house.Window
    assert seen > 10


def test_standing_queries(recording: Recording) -> None:
    queries: dict[str, dict[str, Any]] = {}
    refused = {}
    for raw in raws(recording, "STANDING"):
        parsed = house.parse_standing(raw)
        if isinstance(parsed, house.DeadLetter):
            refused[raw.partition, raw.offset, None] = str(parsed.reason)
            continue
        queries.pop(parsed.id, None)
        if parsed.query is not None:
            put = parsed.query
            queries[parsed.id] = {"session": put.pattern, "question": put.question, "on": put.on}
    written = dead_letters(recording, "STANDING")
    unsupported = {place for place, reason in written.items() if reason == "question_not_supported"}
    assert refused == {place: reason for place, reason in written.items() if place not in unsupported}
    for query in recording.state["standing_queries"]:
        assert_kept(queries[query["id"]], query)
    assert len(queries) == len(recording.state["standing_queries"]) + len(unsupported)


def test_answers_are_known_each_of_them_new_when_it_was_written(recording: Recording) -> None:
    book = house.AnswerBook()
    for record in recording.records(topic(recording, "ANSWERS")):
        session, query = (record.key or b"").decode().split("|")
        if record.value is None:
            assert book.discard(session, query)
            continue
        answer = msgspec.json.decode(record.value, type=house.AnswerRecord)
        assert_kept(json.loads(record.value), msgspec.to_builtins(answer))
        assert (answer.session, answer.query) == (session, query)
        assert book.note(answer)
        assert not book.note(answer), "the same once more is no news"
    assert len(book.all()) > 5


def test_the_calibration_is_read_whole_and_accepted_by_its_own_model_only(recording: Recording) -> None:
    path = recording.folder / CALIBRATION
    read = house.Calibration.load(path)
    assert_kept(recording.json(CALIBRATION), msgspec.to_builtins(read))
    settings = house.EngineSettings(calibration=str(path))
    builder = house.TokenBuilder.load(house.EMBEDDED)
    try:
        assert house.load_calibration(settings, builder) == read
    except house.ConfigError as error:
        assert not recording.of_todays_model
        assert re.search("made for another model: .* is .*, calibrated was", str(error))  # noqa: PT017
    other = house.EngineSettings(calibration=str(path), dtype="float64")
    with pytest.raises(house.ConfigError, match="dtype is 'float64', calibrated was 'float32'"):
        house.load_calibration(other, builder)


def test_risk_control_goes_on_where_it_was(recording: Recording) -> None:
    """The file names deployment, model, calibration and gate: all of them are told as they were then."""
    calibration = house.Calibration.load(recording.folder / CALIBRATION)
    gate = house.build_gate(house.TokenBuilder.load(house.EMBEDDED), calibration)
    ((board, gates),) = recording.json(RISK).items()
    (kept,) = gates.values()
    settings = house.RiskSettings(
        level=float(recording.settings["STREAM_ENGINE_RISK_LEVEL"]),
        horizon=int(recording.settings["STREAM_ENGINE_RISK_HORIZON"]),
        state_file=recording.folder / RISK,
    )
    monitor = house.build_monitor(settings, gate, calibration, calibration.identity, Path(board))
    assert_kept(kept, {name: msgspec.to_builtins(watched.kept()) for name, watched in monitor.classes.items()})
    assert any(watched.state.value == "RAISED" for watched in monitor.classes.values())


def test_settings_of_before_are_read_or_refused_by_name_with_what_takes_their_place(recording: Recording) -> None:
    house.Config.load(env=recording.settings)
    recorded = recording.state["settings"]
    for name in recorded.keys() & RETIRED.keys():
        with pytest.raises(ConfigError, match=RETIRED[name]):
            house.Config.load(env={name: recorded[name]})


def test_a_board_of_before_is_read_or_refused_and_never_misread(recording: Recording, tmp_path: Path) -> None:
    """Its engine is gone: nothing on it may be served. As of the time when it lived, it is what it was."""
    path = tmp_path / "ready.board"
    path.write_bytes(recording.board())
    os.chmod(path, 0o600)
    slots = recording.state["slots"]
    assert len(slots) > 5
    now = house.BoardReader.open(path, 0, clock=lambda: recording.state["clock_ns"] + 3_600 * 10**9)
    then = house.BoardReader.open(path, 0, clock=lambda: recording.state["clock_ns"])
    if now.read(next(iter(slots)), "") is house.Miss.LAYOUT:
        assert all(then.read(session, "") is house.Miss.LAYOUT for session in slots)
        assert then.meta is None
        return
    assert all(now.read(session, "") is house.Miss.LEASE for session in slots)
    for session, expected in slots.items():
        slot = then.read(session, "")
        assert isinstance(slot, house.ReadySlot), slot
        assert expected == {
            "version": slot.evidence.session_version,
            "offset": slot.evidence.offset,
            "bars": slot.evidence.bars,
            "position": slot.ready.position,
            "top1": slot.ready.top1,
            "gap": slot.ready.gap,
            "token_hash": f"{slot.token_hash:016x}",
        }
    meta = then.meta
    assert meta is not None
    calibration = house.Calibration.load(recording.folder / CALIBRATION)
    assert meta.calibration_digest == calibration.digest()
    raised = {name: entry["tau"] for name, entry in risk_of(recording).items()}
    assert {name: meta.classes[name].tau for name in raised} == raised


def risk_of(recording: Recording) -> dict[str, Any]:
    return {entry["class"]: entry for entry in recording.state["calibration"]["classes"]}
