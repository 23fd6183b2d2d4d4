"""What pre-positioning costs and saves on one device: each step timed alone, on a resident session.

The steps are the engine's own (`Segment`, `Branch`, `ModelRunner`): a commit appends, an entry is a branch behind
the live end, a fall-through copies the cells that it reuses. One session, nothing else on the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from loadgen.gpu.results import Noise, Prefill, Spread, StepTimes
from stream_engine.model.backbones.backbone import Backbone
from stream_engine.model.backbones.model_runner import ModelRunner
from stream_engine.model.backbones.summary import summarise
from stream_engine.model.forward.distribution import Distribution
from stream_engine.model.forward.step import Branch, Segment

WARM_UPS = 3
BAR_TOKENS = 3
COMMIT_BARS = 3
COMMIT_TOKENS = COMMIT_BARS * BAR_TOKENS
PREFILL_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
CHUNK = 512
"""Tokens of one step while the context is filled: the engine's own bound (`engine.step_tokens`)."""
ANSWERS = tuple(range(31))
"""As many words as the paper's fast-answer set has; random weights give them no meaning."""
NOISE_DRAWS = 12

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens: resident context, generic entry (the header), question in front of it."""

    context: int
    entry: int
    question: int

    @property
    def room(self) -> int:
        """Cells behind the context: the longest append, or a commit and two whole entries."""
        return max(*PREFILL_LENGTHS, COMMIT_TOKENS + 2 * (self.question + self.entry))

    @property
    def cells(self) -> int:
        """One slab, and a second context to copy it to."""
        return self.context + self.room + self.context

    @property
    def positions(self) -> int:
        """Positions that some step reaches."""
        return self.context + self.room


class TimedModel:
    """A resident session of `sizes.context` random tokens in cells 0.., and the steps on it, timed by `clock`
    (seconds)."""

    def __init__(
        self, backbone: Backbone, sizes: Sizes, seed: int = 0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.backbone = backbone
        self.runner = ModelRunner(backbone, ANSWERS)
        self.sizes = sizes
        self.clock = clock
        self._device = backbone.store.device
        self._random = np.random.default_rng(seed)
        for first in range(0, sizes.context, CHUNK):
            self.runner.run([Segment(0, first, self.tokens(min(CHUNK, sizes.context - first)))])
        self.entry = self.tokens(sizes.entry)
        self.synchronise()

    def tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.integers(0, self.backbone.vocab_size, count).tolist())

    def synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def time(self, work: Callable[[], object], repeats: int, *, wait: bool = True) -> Spread:
        """From an idle device to an idle device, or without `wait` to the return of `work`."""
        seconds = []
        for number in range(WARM_UPS + repeats):
            self.synchronise()
            start = self.clock()
            work()
            if wait:
                self.synchronise()
            if number >= WARM_UPS:
                seconds.append(self.clock() - start)
        return Spread.of(seconds)

    def append(self, count: int) -> Segment:
        return Segment(0, self.sizes.context, self.tokens(count), append_logits=True)

    def branch(
        self, tokens: tuple[int, ...], append: tuple[int, ...] = (), resident: int | None = None
    ) -> Segment:
        """An entry behind the live end, alone or with the commit before it."""
        length = self.sizes.context if resident is None else resident
        return Segment(0, length, append, (Branch(tokens, length + len(append)),))

    def resume(self, entry: tuple[int, ...], delta: int, live_end: int) -> Distribution:
        """A fall-through as the planner makes it: the cells at the live end that are reused are copied behind
        them, and the last `delta` tokens of the entry run."""
        reused, cell = len(entry) - delta, live_end + len(entry)
        self.runner.copy(live_end, cell, reused)
        branch = Branch(entry[reused:], cell + reused, reused, cell if reused else 0)
        return self.runner.run([Segment(0, live_end, branches=(branch,))])[0].branches[0]

    def preposition(self) -> Distribution:
        """Algorithm 1: the entry alone, behind the context."""
        return self.runner.run([self.branch(self.entry)])[0].branches[0]


def measure(bench: TimedModel, repeats: int, told: Told) -> StepTimes:
    """All steps, the quick ones first. `told` hears what is being measured."""
    sizes, run = bench.sizes, bench.runner.run
    whole = bench.tokens(sizes.question + sizes.entry)
    commit = bench.tokens(COMMIT_TOKENS)

    def timed(name: str, work: Callable[[], object], *, wait: bool = True) -> Spread:
        spread = bench.time(work, repeats, wait=wait)
        told(f"{name}: {spread.p50:.2f} ms")
        return spread

    decode = timed("decode", partial(run, [bench.append(1)]))
    launch = timed("decode, launched", partial(bench.backbone.forward, [bench.append(1)]), wait=False)
    alone = timed("commit", partial(run, [Segment(0, sizes.context, commit)]))
    preposition = timed("pre-position", bench.preposition)
    fused = timed("commit and pre-position", partial(run, [bench.branch(bench.entry, commit)]))
    cold = timed("cold", partial(run, [bench.branch(whole)]))  # and leaves the cells that the next two reuse
    resumed = timed("fall-through", partial(bench.resume, whole, 1, sizes.context))
    delta = partial(bench.resume, whole, sizes.question, sizes.context)
    asked = timed("fall-through, question new", delta)
    row = bench.backbone.forward([bench.append(1)]).rows
    scan = timed("scan", partial(summarise, row, ANSWERS))
    copied = timed("copy", partial(bench.runner.copy, 0, sizes.context + sizes.room, sizes.context))
    return StepTimes(
        decode=decode,
        launch=launch,
        prefill=_prefill(bench, timed),
        commit=alone,
        preposition=preposition,
        fused=fused,
        cold=cold,
        fall_through=resumed,
        fall_through_question=asked,
        scan=scan,
        copy=copied,
        truncate_us=_truncate_us(bench),
        noise=_noise(bench, min(repeats, NOISE_DRAWS)),
    )


def _prefill(bench: TimedModel, timed: Callable[[str, Callable[[], object]], Spread]) -> Prefill:
    lengths = {
        count: timed(f"append of {count}", partial(bench.runner.run, [bench.append(count)]))
        for count in PREFILL_LENGTHS
    }
    slope, intercept = np.polyfit(list(lengths), [spread.p50 for spread in lengths.values()], 1)
    return Prefill(lengths, float(slope), float(intercept))


def _truncate_us(bench: TimedModel, times: int = 1000) -> float:
    start = bench.clock()
    for count in range(times):
        bench.backbone.store.extent(0, bench.sizes.context - count % bench.sizes.context)
    return (bench.clock() - start) / times * 1e6


def _noise(bench: TimedModel, draws: int) -> Noise:
    """The gate must not decide inside this: two correct computations would decide differently."""
    context, run = bench.sizes.context, bench.runner.run
    live_end = context + COMMIT_TOKENS
    found: dict[str, list[float]] = {"fused": [], "chunks": [], "reused": []}
    changed = 0
    for _ in range(draws):
        commit, entry = bench.tokens(COMMIT_TOKENS), bench.tokens(bench.sizes.entry)
        ways = {"fused": run([bench.branch(entry, commit)])[0].branches[0]}
        for first in range(0, COMMIT_TOKENS, BAR_TOKENS):
            run([Segment(0, context + first, commit[first : first + BAR_TOKENS])])
        ways["chunks"] = run([bench.branch(entry, resident=live_end)])[0].branches[0]
        run([Segment(0, context, commit)])
        alone = run([bench.branch(entry, resident=live_end)])[0].branches[0]
        ways["reused"] = bench.resume(entry, 1, live_end)
        for way, logits in ways.items():
            found[way].append(abs(logits.gap - alone.gap))
            changed += logits.top1 != alone.top1
    return Noise(
        draws=draws,
        fused=max(found["fused"]),
        chunks=max(found["chunks"]),
        reused=max(found["reused"]),
        top1_changed=changed,
    )
