"""One run of ``loadgen.gpu``: is there room, load, measure, weigh."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from loadgen.gpu.fast_path import ReadTimes, measure_fast_path
from loadgen.gpu.preposition_energy import PrepositionEnergy, measure_energy
from loadgen.gpu.results import StepTimes
from loadgen.gpu.steps import Sizes, TimedModel, measure
from stream_engine.client.failure import Failure
from stream_engine.model.backbones.backbone import Backbone
from stream_engine.model.backbones.random_model import random_model
from stream_engine.model.backbones.shapes import SHAPES, ModelShape, Quantization
from stream_engine.util.energy import EnergyCounter, Unavailable, open_energy

GIB = 2**30
SPARE_BYTES = 2 * GIB
"""Beside weights, KV and an unpacked layer: CUDA's context, activations and masks of the longest append."""
SAY_LAYERS = 10

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for."""

    shape: str
    quantization: Quantization
    device: str
    sizes: Sizes
    repeats: int
    energy_seconds: float

    @property
    def model(self) -> ModelShape:
        return SHAPES[self.shape]


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """seconds: from nothing to weights on the device; context_seconds: filling the context after that.
    weights_gib as computed from the shape; device_gib: all that torch holds on the device, KV included, None on a
    CPU."""

    seconds: float
    context_seconds: float
    weights_gib: float
    device_gib: float | None
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class GpuRun:
    """`energy` is the reason where it could not be measured."""

    device: str
    load: LoadTimes
    steps: StepTimes
    fast_path: ReadTimes
    energy: PrepositionEnergy | str
    seconds: float


def run(settings: Settings, told: Told) -> GpuRun:
    """Raises a Failure, with what to do, where device or model have no room."""
    check_room(settings)
    try:
        return _run(settings, told)
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise Failure(f"out of memory: {reason}; a smaller --shape or --context needs less") from error


def check_room(settings: Settings) -> None:
    """Before anything is loaded: positions of the model, and memory of the device."""
    shape, sizes = settings.model, settings.sizes
    if sizes.positions > shape.positions:
        raise Failure(
            f"--context {sizes.context}: with the {sizes.room} tokens that are measured behind it that passes the "
            f"model's {shape.positions} positions; at most {max(0, shape.positions - sizes.room)}",
            2,
        )
    if settings.device == "cuda":
        if not torch.cuda.is_available():
            raise Failure("no CUDA device that torch can use; --device cpu --shape tiny shows the script itself")
        free = torch.cuda.mem_get_info()[0]
    else:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = needed_bytes(settings)
    if needed > free:
        weights = shape.weight_bytes(settings.quantization)
        raise Failure(
            f"--shape {settings.shape} --quantization {settings.quantization} needs about {needed / GIB:.1f} GiB, "
            f"{weights / GIB:.1f} of them weights; the {settings.device} device has {free / GIB:.1f}"
        )


def needed_bytes(settings: Settings) -> int:
    """Memory that a run takes at most, about."""
    shape = settings.model
    kept = shape.weight_bytes(settings.quantization) + settings.sizes.cells * shape.cell_bytes
    # Twice the largest layer: its values beside the one that is packed, or unpacked, at the moment.
    return kept + 2 * shape.largest_layer_bytes + (SPARE_BYTES if settings.device == "cuda" else 0)


def _run(settings: Settings, told: Told) -> GpuRun:
    start = time.monotonic()

    def progress(done: int, layers: int) -> None:
        if done == layers or done % SAY_LAYERS == 0:
            told(f"random weights: {done} of {layers} layers")

    model = random_model(settings.model, quantization=settings.quantization, device=settings.device, told=progress)
    backbone = Backbone(model, settings.sizes.cells)
    on_gpu = settings.device == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the unpacked layers took
    loaded = time.monotonic()
    told(f"filling the context: {settings.sizes.context} tokens")
    bench = TimedModel(backbone, settings.sizes)
    load = LoadTimes(
        seconds=loaded - start,
        context_seconds=time.monotonic() - loaded,
        weights_gib=settings.model.weight_bytes(settings.quantization) / GIB,
        device_gib=torch.cuda.memory_allocated() / GIB if on_gpu else None,
        kv_bytes_per_token=backbone.store.bytes_per_cell,
    )
    steps = measure(bench, settings.repeats, told)
    told("reads of a ready board")
    fast_path = measure_fast_path(bench.preposition(), settings.sizes.context + settings.sizes.entry)
    return GpuRun(
        device=torch.cuda.get_device_name() if on_gpu else "CPU",
        load=load,
        steps=steps,
        fast_path=fast_path,
        energy=_energy(settings, bench, told),
        seconds=time.monotonic() - start,
    )


def _energy(settings: Settings, bench: TimedModel, told: Told) -> PrepositionEnergy | str:
    if settings.energy_seconds == 0:
        return "left out: --energy-seconds 0"
    counter = _counter(settings.device)
    if isinstance(counter, Unavailable):
        return f"unavailable: {counter.reason}"
    told(f"energy: {settings.energy_seconds:g} s idle, and as long in a loop")
    try:
        return measure_energy(counter, bench.preposition, settings.energy_seconds)
    finally:
        counter.close()


def _counter(device: str) -> EnergyCounter | Unavailable:
    """The counter of the device that torch uses, whatever CUDA_VISIBLE_DEVICES makes its number."""
    if device == "cpu":
        return open_energy(None)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return open_energy(f"GPU-{str(properties.uuid).removeprefix('GPU-')}")  # NVML has the prefix, torch may not
