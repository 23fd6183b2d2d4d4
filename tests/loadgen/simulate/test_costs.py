"""A benchmark's file is read field by field, and refused by the field's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.simulate.costs import PAPER, Costs, MeasuredCold, MeasuredHits, read_measured

COSTS: dict[str, Any] = {
    "prefill_ms_per_token": 0.05, "decode_ms": 7, "scan_ms": 0.15, "restore_ms": 0.0, "entry_tokens": 12,
    "gate_fires": 1,
}  # fmt: skip


def write(folder: Path, content: object) -> Path:
    file = folder / "bench.json"
    file.write_text(json.dumps(content))
    return file


def test_the_gates_coverage_is_that_of_the_run() -> None:
    assert pytest.approx(121 / 128, abs=5e-5) == PAPER.gate_fires


def test_costs_and_points_are_read_and_other_fields_left_alone(tmp_path: Path) -> None:
    hits = [{"rho": 1, "prepositions": 128, "hits": 66}]
    cold = [{"entry_tokens": 10, "first_token_ms": 7.9, "p99": 9.0}]
    content = {"costs": COSTS, "machine": "mine", "hit_rates": hits, "cold": cold, "energy": {}}
    measured = read_measured(write(tmp_path, content))
    assert measured.machine == "mine"
    assert measured.costs == Costs(
        prefill_ms_per_token=0.05, decode_ms=7.0, scan_ms=0.15, restore_ms=0.0, entry_tokens=12, gate_fires=1.0
    )
    assert measured.hit_rates == (MeasuredHits(rho=1.0, prepositions=128, hits=66),)
    assert measured.cold == (MeasuredCold(entry_tokens=10, first_token_ms=7.9),)


@pytest.mark.parametrize("field", COSTS)
def test_a_missing_cost_is_named(field: str, tmp_path: Path) -> None:
    content = {"costs": {name: value for name, value in COSTS.items() if name != field}}
    with pytest.raises(ValueError, match=rf"bench.json: .*{field}"):
        read_measured(write(tmp_path, content))


@pytest.mark.parametrize(
    ("field", "value"),
    [("prefill_ms_per_token", 0), ("decode_ms", -1), ("scan_ms", "0.1"), ("restore_ms", -0.1), ("entry_tokens", 0),
     ("entry_tokens", 1.5), ("gate_fires", 1.01), ("gate_fires", None)],
)  # fmt: skip
def test_a_wrong_cost_is_refused_by_its_place(field: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"bench.json: .*\$\.costs\.{field}"):
        read_measured(write(tmp_path, {"costs": {**COSTS, field: value}}))


def test_more_hits_than_pre_positions_are_refused(tmp_path: Path) -> None:
    content = {"costs": COSTS, "hit_rates": [{"rho": 1, "prepositions": 8, "hits": 9}]}
    with pytest.raises(ValueError, match="hits 9 of 8"):
        read_measured(write(tmp_path, content))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"costs": {"decode_ms": 1e999}}'])
def test_what_is_no_such_file_is_refused_with_its_name(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_bytes(text)
    with pytest.raises(ValueError, match=r"bench\.json"):
        read_measured(file)
