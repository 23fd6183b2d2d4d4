"""Energy counters: a made powercap folder, and a stand-in for the NVML module, which needs a GPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from stream_engine.util import energy
from stream_engine.util.energy import NvmlPower, Unavailable, open_energy


def package(folder: Path, number: int, energy: int, name: str = "package") -> Path:
    domain = folder / f"intel-rapl:{number}"
    domain.mkdir(parents=True)
    (domain / "name").write_text(f"{name}-{number}\n")
    (domain / "max_energy_range_uj").write_text("999999\n")
    (domain / "energy_uj").write_text(f"{energy}\n")
    return domain / "energy_uj"


class FakeNvml:
    """What is used of pynvml."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, library: bool = True, counter: bool = True, power: bool = True) -> None:
        self.library, self.counter, self.power = library, counter, power
        self.millijoules = 5_000_000
        self.milliwatts = 200_000
        self.opened = 0
        self.asked: list[str] = []

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.library:
            raise self.NVMLError("NVML Shared Library Not Found")
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        self.asked.append(uuid)
        return "handle"

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:  # noqa: N802
        if bus == "absent":
            raise self.NVMLError("Not Found")
        self.asked.append(bus)
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        if not self.counter:
            raise self.NVMLError("Not Supported")
        return self.millijoules

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        if not self.power:
            raise self.NVMLError("Not Supported")
        return self.milliwatts


def test_packages_are_summed_and_nothing_else(tmp_path: Path) -> None:
    first, second = package(tmp_path, 0, 100), package(tmp_path, 1, 200)
    package(tmp_path, 2, 0, "psys").write_text("not read")
    counter = open_energy(None, rapl=tmp_path)
    assert not isinstance(counter, Unavailable)
    before = counter.joules()
    first.write_text("500100")
    second.write_text("200200")
    assert counter.joules() - before == pytest.approx(0.7)
    counter.close()


def test_a_counter_that_starts_again_goes_on(tmp_path: Path) -> None:
    file = package(tmp_path, 0, 900_000)
    counter = open_energy(None, rapl=tmp_path)
    assert not isinstance(counter, Unavailable)
    before = counter.joules()
    file.write_text("100000")
    assert counter.joules() - before == pytest.approx(0.2)
    file.write_text("100001")
    assert counter.joules() - before == pytest.approx(0.200001)


def test_no_packages_are_said(tmp_path: Path) -> None:
    found = open_energy(None, rapl=tmp_path / "absent")
    assert isinstance(found, Unavailable)
    assert "absent" in found.reason


def test_a_counter_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = package(tmp_path, 0, 1)
    read = Path.read_text

    def refuse(self: Path, **options: Any) -> str:  # root, as whom tests may run, can read any file
        if self == file:
            raise PermissionError(13, "Permission denied", str(self))
        return read(self, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    found = open_energy(None, rapl=tmp_path)
    assert isinstance(found, Unavailable)
    assert str(file) in found.reason
    assert "root" in found.reason


@pytest.mark.parametrize("name", ["GPU-8a1b", "00000000:65:00.0"])
def test_a_gpu_is_found_by_its_own_name(name: str) -> None:
    nvml = FakeNvml()
    counter = open_energy(name, nvml=nvml)
    assert not isinstance(counter, Unavailable)
    assert nvml.asked == [name]
    before = counter.joules()
    nvml.millijoules += 2_500
    assert counter.joules() - before == pytest.approx(2.5)
    counter.close()
    assert nvml.opened == 0


def test_power_is_sampled_where_no_energy_is_counted() -> None:
    nvml = FakeNvml(counter=False)
    counter = open_energy("GPU-1", nvml=nvml)
    assert isinstance(counter, NvmlPower)
    assert "sampled" in counter.source
    counter.close()
    assert nvml.opened == 0


def test_power_is_summed_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks it is taken to change evenly. Only this test looks: the thread's turn does not come."""
    monkeypatch.setattr(energy, "SAMPLE_S", 3600.0)
    nvml, now = FakeNvml(counter=False), [1_000.0]
    counter = NvmlPower(nvml, "handle", lambda: now[0])
    assert counter.joules() == 0
    now[0] += 2.0
    assert counter.joules() == pytest.approx(400)  # 200 W from the start
    now[0], nvml.milliwatts = now[0] + 0.5, 300_000
    assert counter.joules() == pytest.approx(400 + 125)
    now[0] += 1.0
    assert counter.joules() == pytest.approx(400 + 125 + 300)
    counter.close()


def test_power_is_looked_at_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that comes and goes between two questions is seen."""
    monkeypatch.setattr(energy, "SAMPLE_S", 0.001)
    nvml, looked = FakeNvml(counter=False), threading.Event()
    counter = NvmlPower(nvml, "handle")
    monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", lambda handle: looked.set() or 200_000)
    assert looked.wait(60)
    counter.close()


@pytest.mark.parametrize(
    ("nvml", "device", "reason"),
    [
        (FakeNvml(library=False), "GPU-1", "Library Not Found"),
        (FakeNvml(counter=False, power=False), "MIG-1", "Not Supported"),
        (FakeNvml(), "absent", "Not Found"),
    ],
)
def test_what_is_not_there_is_said(nvml: FakeNvml, device: str, reason: str) -> None:
    found = open_energy(device, nvml=nvml)
    assert isinstance(found, Unavailable)
    assert reason in found.reason
    assert nvml.opened == 0, "what was opened is closed"


def test_the_real_module_never_raises() -> None:
    found = open_energy("GPU-00000000-0000-0000-0000-000000000000")
    assert isinstance(found, Unavailable)
    assert found.reason.startswith("NVML: ")
