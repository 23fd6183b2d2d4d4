"""Energy that a device has drawn: a counter of NVIDIA's NVML or of the processor's RAPL, or why there is none.

    source = open_energy(pci_bus_id)       # or a GPU's UUID; None: the processor
    if isinstance(source, Unavailable): ...
    before = source.joules()

A counter must be closed. Nothing here imports torch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

RAPL = Path("/sys/class/powercap")
SAMPLE_S = 0.05
"""Between two looks at the power of a board that counts no energy."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """There is no energy counter; `reason` says why."""

    reason: str


class EnergyCounter(Protocol):
    """`source` names the instrument. Not thread-safe."""

    source: str

    def joules(self) -> float:
        """Energy since some moment of the past: only differences mean something."""
        ...

    def close(self) -> None: ...


def open_energy(device: str | None, *, rapl: Path = RAPL, nvml: Any = None) -> EnergyCounter | Unavailable:
    """The counter of a GPU, by UUID (`GPU-...`, `MIG-...`) or PCI bus id (`00000000:65:00.0`), or of the
    processor's packages where `device` is None. An index would not do: CUDA and NVML count differently, and
    CUDA_VISIBLE_DEVICES hides devices from CUDA alone.

    nvml: the pynvml module; imported where it is None.
    """
    if device is None:
        return open_rapl(rapl)
    if nvml is not None:
        return open_nvml(device, nvml)
    try:
        import pynvml
    except ImportError:
        return Unavailable("NVML: the package nvidia-ml-py is not installed")
    return open_nvml(device, pynvml)


class NvmlCounter:
    """The board's own energy counter (millijoules since the driver was loaded; Volta and newer have it)."""

    source = "NVML energy counter"

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def joules(self) -> float:
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3

    def close(self) -> None:
        self._nvml.nvmlShutdown()


class NvmlPower:
    """Sum of the board's power (milliwatts) over time, sampled by a thread of its own."""

    source = f"NVML power, sampled every {SAMPLE_S * 1e3:.0f} ms"

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._handle = handle
        self._clock = clock
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._joules = 0.0
        self._last = (clock(), self._watts())
        self._thread = threading.Thread(target=self._run, name="energy", daemon=True)
        self._thread.start()

    def joules(self) -> float:
        with self._lock:
            before, watts = self._last
            self._last = now, power = self._clock(), self._watts()
            self._joules += (now - before) * (watts + power) / 2
            return self._joules

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._nvml.nvmlShutdown()

    def _watts(self) -> float:
        return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1e3

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self.joules()


def open_nvml(device: str, nvml: Any) -> EnergyCounter | Unavailable:
    """The counter of one GPU, or its sampled power where it counts no energy."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Unavailable(f"NVML: {error}")
    try:
        named = device.startswith(("GPU-", "MIG-"))
        handle = (nvml.nvmlDeviceGetHandleByUUID if named else nvml.nvmlDeviceGetHandleByPciBusId)(device)
        try:
            nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except nvml.NVMLError:
            return NvmlPower(nvml, handle)  # raises where the power cannot be read either, as with MIG
        return NvmlCounter(nvml, handle)
    except nvml.NVMLError as error:
        nvml.nvmlShutdown()
        return Unavailable(f"NVML: {device}: {error}")


@dataclass(slots=True)
class _Package:
    """One processor package: its counter file, the value (microjoules) after which it starts again from 0, and
    what was read last."""

    file: Path
    highest: int
    last: int


class RaplCounter:
    """The processor's packages, from Linux's powercap files. A counter starts again from 0 after some minutes at
    full power: read it more often than that."""

    source = "RAPL packages"

    def __init__(self, packages: list[_Package]) -> None:
        self._packages = packages
        self._microjoules = 0

    def joules(self) -> float:
        for package in self._packages:
            now = _number(package.file)
            passed = now - package.last
            self._microjoules += passed if passed >= 0 else passed + package.highest + 1
            package.last = now
        return self._microjoules / 1e6

    def close(self) -> None:
        """Nothing is held."""


def open_rapl(folder: Path = RAPL) -> EnergyCounter | Unavailable:
    """The counters of all packages. Their parts (cores, memory) and the whole platform would count twice."""
    packages = []
    try:
        for domain in sorted(folder.glob("intel-rapl:*")):
            if (domain / "name").read_text(encoding="utf-8").startswith("package"):
                counter = domain / "energy_uj"
                highest = _number(domain / "max_energy_range_uj")
                packages.append(_Package(counter, highest, _number(counter)))
    except PermissionError as error:
        return Unavailable(f"RAPL: {error.filename} is readable by root only")
    except (OSError, ValueError) as error:
        return Unavailable(f"RAPL: {error}")
    if not packages:
        return Unavailable(f"RAPL: no packages in {folder}")
    return RaplCounter(packages)


def _number(file: Path) -> int:
    return int(file.read_text(encoding="utf-8"))
