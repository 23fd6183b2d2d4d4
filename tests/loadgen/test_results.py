"""From counts and times to a phase, by hand."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from rich.console import Console

from loadgen import report
from loadgen.counters import Counters
from loadgen.results import Answered, PathTimes, Phase, Times, summarise
from loadgen.runner import Load, LoadOutcome
from query_api.fast_path import UNREADABLE
from stream_engine.config.kafka import KafkaSettings
from stream_engine.decision.gate import GateReason
from stream_engine.decision.judge import Outcome
from stream_engine.decision.reading import Miss
from stream_engine.util.intervals import wilson

METRICS = """\
# TYPE query_api_fast_path_total counter
query_api_fast_path_total{outcome="fired"} 30.0
query_api_fast_path_total{outcome="gap"} 8.0
query_api_fast_path_total{outcome="warming_up"} 2.0
query_api_fast_path_total{outcome="absent"} 5.0
# TYPE stream_engine_commits_total counter
stream_engine_commits_total 100.0
# TYPE stream_engine_preposition_slots_total counter
stream_engine_preposition_slots_total 98.0
# TYPE stream_engine_preposition_hits_total counter
stream_engine_preposition_hits_total 20.0
# TYPE stream_engine_preposition_wasted_total counter
stream_engine_preposition_wasted_total 60.0
# TYPE stream_engine_consumer_lag_records gauge
stream_engine_consumer_lag_records{partition="0",topic="t"} 7.0
"""
LOAD = Load(
    url="http://api", kafka=KafkaSettings(bootstrap_servers="broker:9092", bars_topic="bars"), rhos=(1.0,),
    seconds=10.0, updates_per_second=1.0, sessions=8, seed=1,
    questions=("What is the trend?",), history_bars=64, name="LOAD",
)  # fmt: skip
COUNTED = Counters(commits=80, completed=80, hits=36, wasted=44, skipped=0, fired=30, read=40)


def answered(path: str, *client_ms: float) -> list[Answered]:
    return [Answered(path, value, value / 2, 0.1) for value in client_ms]


def phase(counted: Counters = COUNTED, **changes: object) -> Phase:
    values: dict[str, object] = {
        "rho": 1.0,
        "seconds": 10.0,
        "updates": 80,
        "answered": answered("fast", *[1.0] * 60) + answered("cold", *[9.0] * 12),
        "errors": {"503": 3},
        "counted": counted,
        "baseline": PathTimes.by_path(answered("cold", 50.0) + answered("fallthrough", 5.0, 7.0)),
    }
    return summarise(**(values | changes))  # type: ignore[arg-type]


def test_counters_are_read_and_subtracted() -> None:
    before = Counters.parse(METRICS)
    assert before == Counters(commits=100, completed=98, hits=20, wasted=60, skipped=0, fired=30, read=40)
    after = dataclasses.replace(before, hits=25, read=41)
    assert after.since(before) == Counters(0, 0, 5, 0, 0, 0, 1)


def test_read_are_all_outcomes_that_had_a_valid_distribution_and_no_others() -> None:
    """Whatever the gate made of it: each of its reasons, and an answer below it that the caller asked for."""
    found = {reason.value for reason in GateReason} | {Outcome.BELOW_GATE.value}
    ends = {outcome.value for outcome in (*Outcome, *Miss)} | {UNREADABLE}
    others = ends - found - {Outcome.NOT_FRESH.value}  # no bounds are asked for
    text = "\n".join(
        f'query_api_fast_path_total{{outcome="{name}"}} {value}'
        for names, value in ((found, 1), (others, 100))
        for name in sorted(names)
    )
    counted = Counters.parse(f"# TYPE query_api_fast_path_total counter\n{text}\n")
    assert (counted.read, counted.fired) == (len(found), 1)


def test_a_phase_by_hand() -> None:
    measured = phase()
    assert measured.hit_rate == pytest.approx(0.45)
    assert (measured.hit_rate_low, measured.hit_rate_high) == wilson(36, 80)
    assert measured.wasted_rate == pytest.approx(0.55)
    assert measured.rho_realised == pytest.approx(72 / 80)
    assert measured.hit_rate_closed_form == pytest.approx(0.9 / 1.9)
    assert measured.gate_fire_rate == pytest.approx(0.75)
    assert measured.ready_rate == pytest.approx(40 / 72)
    assert (measured.queries, measured.errors) == (75, {"503": 3})
    assert measured.mean_ms == pytest.approx((60 * 1 + 12 * 9) / 72)
    # after a gate miss cold as well: nothing fell through in this phase, whatever the baseline did
    assert measured.expected_ms == pytest.approx(0.45 * (0.75 * 1 + 0.25 * 9) + 0.55 * 9)


def test_a_gate_miss_costs_the_mean_of_cold_and_fall_through_as_they_came() -> None:
    measured = phase(
        answered=[*answered("fast", 1.0), *answered("cold", 9.0), *(answered("fallthrough", 3.0) * 2)]
    )
    assert measured.paths["fallthrough"].count == 2 * measured.paths["cold"].count
    assert measured.expected_ms == pytest.approx(0.45 * (0.75 * 1 + 0.25 * 5) + 0.55 * 9)


def test_paths_that_no_query_took_are_those_of_the_baseline() -> None:
    measured = phase(answered=answered("fast", 1.0), baseline=PathTimes.by_path(answered("cold", 8.0)))
    assert measured.expected_ms == pytest.approx(0.45 * (0.75 * 1 + 0.25 * 8) + 0.55 * 8)


def test_paths_are_told_apart_and_percentiles_are_of_the_client_from_the_intended_time() -> None:
    paths = phase().paths
    assert set(paths) == {"fast", "cold"}
    assert (paths["fast"].count, paths["cold"].count) == (60, 12)
    assert paths["cold"].server.p50 == pytest.approx(4.5)
    times = Times.of([float(value) for value in range(1, 102)])
    assert (times.p50, times.p90, times.p99, times.mean) == (51, 91, 100, 51)


def test_nothing_counted_is_no_rate() -> None:
    measured = phase(Counters(0, 0, 0, 0, 0, 0, 0), answered=[], errors={})
    assert (
        measured.hit_rate
        is measured.hit_rate_low
        is measured.rho_realised
        is measured.gate_fire_rate
        is measured.expected_ms
        is None
    )
    assert measured.mean_ms is measured.late is None
    assert measured.paths == {}


def test_a_gate_that_never_fires_needs_no_fast_latency() -> None:
    measured = phase(dataclasses.replace(COUNTED, fired=0), answered=answered("cold", 9.0), baseline={})
    assert measured.expected_ms == pytest.approx(9.0)


def shown(outcome: LoadOutcome) -> str:
    console = Console(width=report.WIDTH, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    report.show(LOAD, outcome, console)
    console.file.close()
    return console.export_text()


def rows(text: str) -> list[list[str]]:
    """Cells of the tables' lines."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_the_document_repeats_the_run() -> None:
    outcome = LoadOutcome("embedded", PathTimes.by_path(answered("cold", 50.0)), (phase(),))
    found = msgspec.json.decode(report.encode(LOAD, outcome))
    assert found["settings"]["topic"] == "bars"
    assert found["settings"]["seed"] == 1
    assert found["machine"]["cpus"] > 0
    assert found["versions"]["kafka-python"]
    assert found["phases"][0]["paths"]["fast"]["client"]["p99"] == 1.0
    assert found["baseline"]["cold"]["count"] == 1


def test_every_column_of_the_tables_shows_its_own_figure() -> None:
    fast = [Answered("fast", client, client / 4, 0.1) for client in (1.0, *[2.0] * 98, 3.0)]
    baseline = PathTimes.by_path([Answered("cold", 50.0 + number, 40.0 + number, 0.0) for number in range(11)])
    measured = phase(dataclasses.replace(COUNTED, wasted=60, fired=30), answered=fast, baseline=baseline)
    # h 36/96, realised rho 100/80 and its closed form 1.25/2.25, g 30/40; E[L] = .375 (.75 2 + .25 55) + .625 55
    assert rows(shown(LoadOutcome("embedded", baseline, (measured,)))) == [
        ["1", "1.250", "80", "103", "0.375", "0.285..0.475", "0.556", "0.625", "0.750", "40.09", "2.00"],
        ["idle", "cold", "11", "55.00", "59.00", "59.90", "45.00", "49.00", "49.90"],
        ["1", "fast", "100", "2.00", "2.00", "2.01", "0.50", "0.50", "0.50"],
    ]


def test_what_is_not_there_is_a_dash() -> None:
    nothing = phase(Counters(0, 0, 0, 0, 0, 0, 0), answered=[], errors={})
    assert rows(shown(LoadOutcome("embedded", {}, (nothing,))))[0] == ["1", "-", "0", "0", *["-"] * 7]


def test_the_lines_below_the_tables() -> None:
    late = [Answered("fast", 1.0, 0.5, late) for late in (*[0.25] * 99, 7.0)]
    text = shown(LoadOutcome("embedded", {}, (phase(answered=late),)))
    assert "late by 0.25 ms (p50), 0.32 ms (p99)" in text
    assert "3 of 103 queries without an answer: 503" in text
    assert "other data" not in text
    more = shown(LoadOutcome("embedded", {}, (phase(dataclasses.replace(COUNTED, commits=81)),)))
    assert "81 commits of 80 updates: other data" in more
