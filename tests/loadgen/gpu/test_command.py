"""``python -m loadgen.gpu`` on a tiny model and the CPU: every quantity is there; none is held to a time. What is
timed in which row is the matter of ``test_gpu_steps``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner, Result

from loadgen.gpu import run as gpu_run
from loadgen.gpu.command import main
from loadgen.gpu.steps import TimedModel
from stream_engine.model.forward.distribution import Distribution
from stream_engine.util.energy import Unavailable

TINY = ("--device", "cpu", "--shape", "tiny", "--context", "48", "--repeats", "2")
STEPS = (
    "decode", "launch", "commit", "preposition", "fused", "cold", "fall_through", "fall_through_question", "scan",
    "copy",
)  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads, and wait for them where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("quantization", ["nf4", "none"])
def test_a_run_measures_everything(tmp_path: Path, quantization: str) -> None:
    file = tmp_path / "gpu.json"
    result = invoke(*TINY, "--quantization", quantization, "--energy-seconds", "0", "--json", str(file))
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_bytes())
    assert found["settings"]["sizes"] == {"context": 48, "entry": 16, "question": 16}
    steps = found["steps_ms"]
    for name in STEPS:
        assert 0 < steps[name]["p50"] <= steps[name]["p90"], name
        assert steps[name]["repeats"] == 2
    assert list(steps["prefill"]["lengths"]) == ["16", "32", "64", "128", "256", "512", "1024"]
    assert steps["truncate_us"] > 0
    derived = found["derived"]
    assert derived["restore_ms"] == pytest.approx(steps["fall_through"]["p50"] - steps["decode"]["p50"])
    assert derived["fused_extra_ms"] == pytest.approx(steps["fused"]["p50"] - steps["commit"]["p50"])
    assert found["fast_path"]["reads"] >= 10_000
    assert 0 < found["fast_path"]["p50_us"] <= found["fast_path"]["p90_us"]
    assert found["load"]["kv_bytes_per_token"] == 2 * 2 * 2 * 2 * 16
    assert "left out" in found["energy"]["missing"]
    assert found["versions"]["torch"] == torch.__version__.partition("+")[0]
    # The same tokens give the same answer, fused or alone, up to bfloat16: gaps here are of size 1.
    assert steps["noise"]["draws"] == 2
    assert max(steps["noise"][way] for way in ("fused", "chunks", "reused")) == derived["noise"] < 0.25
    for text in ("39.12", "0.8430", "63.80", "fall-through, delta 0"):
        assert text in result.output


class Meter:
    """One joule more at each look, and none else: what matters here is who looks, and when."""

    source = "test"

    def __init__(self) -> None:
        self.looks = 0
        self.closed = 0

    def joules(self) -> float:
        self.looks += 1
        return float(self.looks)

    def close(self) -> None:
        self.closed += 1


def test_energy_is_of_the_device_that_the_run_is_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meter, asked, entries = Meter(), [], []
    preposition = TimedModel.preposition

    def opened(device: str | None) -> Meter:
        asked.append(device)
        return meter

    def counted(bench: TimedModel) -> Distribution:
        entries.append(meter.looks)
        return preposition(bench)

    monkeypatch.setattr(gpu_run, "open_energy", opened)
    monkeypatch.setattr(TimedModel, "preposition", counted)
    file = tmp_path / "gpu.json"
    result = invoke(*TINY, "--quantization", "none", "--energy-seconds", "0.01", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert asked == [None]  # a processor's
    energy = json.loads(file.read_bytes())["energy"]
    assert energy["source"] == "test"
    assert (meter.looks, meter.closed) == (4, 1)
    assert energy["prepositions"] == entries.count(3) >= 1, "they ran between the last two looks"
    assert energy["loop_w"] * energy["seconds_each"] * energy["prepositions"] == pytest.approx(1)
    assert energy["joules"] == pytest.approx((energy["loop_w"] - energy["idle_w"]) * energy["seconds_each"])
    assert "energy of a pre-position" in result.output
    assert "Energy: " not in result.output, "it is not missing"


def test_no_meter_is_said_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_run, "open_energy", lambda device: Unavailable("this machine has none"))
    file = tmp_path / "gpu.json"
    result = invoke(*TINY, "--quantization", "none", "--energy-seconds", "0.01", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert json.loads(file.read_bytes())["energy"] == {"missing": "unavailable: this machine has none"}
    assert "Energy: unavailable: this machine has none." in result.output


@pytest.mark.parametrize("uuid", ["8a1b", "GPU-8a1b"])
def test_a_gpus_meter_is_found_by_its_own_name(uuid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA and NVML number devices differently; torch leaves the prefix of a UUID out, or not."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {3: SimpleNamespace(uuid=uuid)}.__getitem__)
    asked: list[str] = []
    monkeypatch.setattr(gpu_run, "open_energy", asked.append)
    gpu_run._counter("cuda")
    assert asked == ["GPU-8a1b"]


def test_help_answers_without_torch() -> None:
    script = (
        "import sys, runpy; sys.argv = ['gpu', '--help']\n"
        "try:\n    runpy.run_module('loadgen.gpu', run_name='__main__')\n"
        "except SystemExit as end:\n    sys.exit(end.code or 77 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "llama-70b" in done.stdout


def test_without_a_gpu_it_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # also on a machine that has one
    result = invoke()
    assert result.exit_code == 1
    assert "no CUDA device" in result.output
    assert "--device cpu --shape tiny" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--device", "cpu", "--shape", "tiny", "--context", "8000"), 2, "8192 positions; at most 7168"),
        (("--device", "cpu", "--json", "/absent/gpu.json"), 2, "/absent"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(arguments: tuple[str, ...], code: int, text: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == code
    assert text in result.output


def test_too_little_memory_names_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2**21, "SC_PAGE_SIZE": 4096}.__getitem__)
    result = invoke("--device", "cpu")
    assert result.exit_code == 1
    assert "needs about 39.2 GiB, 36.8 of them weights; the cpu device has 8.0" in result.output


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.gpu.command.find_spec", lambda name: None)
    result = invoke(*TINY)
    assert result.exit_code == 1
    assert "not installed: torch, transformers, bitsandbytes; pip install 'stream-engine[engine]'" in result.output
