"""Is a model fit for the fast path? Its gate on simulated windows, its sense of direction, its speed (Table 1)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from stream_engine.assemble import budget_shape, build_gate, load_runner, model_builder, model_files
from stream_engine.calibrate.replay import Moment, Replay
from stream_engine.calibrate.series import Series, simulated_series
from stream_engine.calibrate.truth import truths
from stream_engine.config import EngineSettings
from stream_engine.engine import Engine
from stream_engine.gate import Gate
from stream_engine.intervals import wilson
from stream_engine.model.frame import BarArrays
from stream_engine.model.profile import Profile
from stream_engine.model.rendering import Builder
from stream_engine.model.runner import Runner, SegmentResult
from stream_engine.model.step import Segment
from stream_engine.publish import Publication

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
CLEAN_EACH = 4
CLEAN_STEP = 1.0
"""Drift a bar of a clean window, in standard deviations of its noise; over 32 bars that is far from flat."""

HARDLY = 0.05
"""A gate that fires on no more than this share is of no use."""

PREFILL_TOKENS = 32
"""Steps that append so many tokens tell the time of a prefill."""

_BAR_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Clean:
    """A window whose direction nobody can miss: what it does, the header's first choice as text, its gap, and
    whether the gate lets it through."""

    direction: str
    said: str
    gap: float
    fires: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found. Counts are of `windows` simulated windows: header's first choice in the fast-answer set
    (`in_set`), gate fired, right of those, the same as the full path of those; `right_all` with no gate.

    gaps: quantiles (`QUANTILES`) of the header's gap in logits. prefill_ms: a token; decode_ms: an entry on the
    resident state, which is what a question costs on the full path.
    """

    model: str
    tau: float
    windows: int
    in_set: int
    fired: int
    right: int
    agree: int
    right_all: int
    gaps: tuple[float, ...]
    clean: tuple[Clean, ...]
    prefill_ms: float
    decode_ms: float

    @property
    def tells_directions(self) -> bool:
        """All clean windows of one direction get one word, and no other direction gets it."""
        pairs = {(one.direction, one.said) for one in self.clean}
        return len(pairs) == len({direction for direction, _ in pairs}) == len({word for _, word in pairs})

    def verdict(self) -> str:
        """One plain sentence: whether the gate will ever fire, and what it is then worth."""
        share, (low, high) = self.fired / self.windows, wilson(self.fired, self.windows)
        if not self.fired:
            where = f"on none of {self.windows} windows it did"
            return f"The gate will never fire: {where}. Every question takes the full path."
        if share <= HARDLY:
            return f"The gate will hardly ever fire: on {share:.1%} of windows [{low:.1%}, {high:.1%}]."
        worth = f"it is right in {self.right / self.fired:.1%} of those"
        if not self.tells_directions:
            worth += ", but clean rises, falls and sideways windows do not get three different answers"
        return f"The gate fires on {share:.1%} of windows [{low:.1%}, {high:.1%}], and {worth}."


@dataclass(slots=True)
class _Timed:
    """A runner that notes each step: appended tokens, branches, seconds."""

    runner: Runner
    steps: list[tuple[int, int, float]] = field(default_factory=list)

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        start = time.perf_counter()
        results = self.runner.run(segments)
        seconds = time.perf_counter() - start
        appended = sum(len(segment.append) for segment in segments)
        self.steps.append((appended, sum(len(segment.branches) for segment in segments), seconds))
        return results

    def copy(self, source: int, target: int, count: int) -> None:
        self.runner.copy(source, target, count)

    def milliseconds(self, wanted: Iterable[float]) -> float:
        found = [1e3 * one for one in wanted]
        return median(found) if found else float("nan")

    @property
    def prefill_ms(self) -> float:
        return self.milliseconds(seconds / size for size, _, seconds in self.steps if size >= PREFILL_TOKENS)

    @property
    def decode_ms(self) -> float:
        return self.milliseconds(seconds for size, branches, seconds in self.steps if not size and branches == 1)


def probe(settings: EngineSettings, windows: int, seed: int, told: Callable[[int, int], None]) -> Probe:
    """Load the configured model and probe it at its profile's tau. Raises ConfigError where that fails."""
    settings = dataclasses.replace(
        settings, calibration="none", max_sessions=1, total_cells=0, preposition="fused", promoted_questions=0
    )
    builder = model_builder(settings, model_files(settings))
    shape, gate = budget_shape(settings, builder), build_gate(builder)
    runner = _Timed(load_runner(settings, builder, shape))
    engine = Engine(settings, builder, runner, shape, gate, Publication(None, builder.profile, gate))
    return probe_engine(engine, gate, runner, windows, seed, told)


def probe_engine(
    engine: Engine, gate: Gate, runner: _Timed, windows: int, seed: int, told: Callable[[int, int], None]
) -> Probe:
    """Probe an engine of one session whose runner is timed."""
    builder = engine.builder
    profile = builder.profile
    replay, kind = Replay(engine), profile.generic_class
    cleans = clean_windows(profile, seed)
    total, done = windows + len(cleans), 0
    moments: list[Moment] = []
    for moment in replay.simulated(simulated_series(seed, windows, profile.region_bars)):
        moments.append(moment)
        done += 1
        told(done, total)
    found: list[Clean] = []
    for (direction, _), moment in zip(cleans, replay.simulated([series for _, series in cleans]), strict=True):
        fires = gate.decide(moment.header, kind.name).fires
        found.append(Clean(direction, said(builder, moment), moment.header.gap, fires))
        done += 1
        told(done, total)
    right = [word[kind.name] for word in truths([kind], [moment.window for moment in moments])]
    decided = [gate.decide(moment.header, kind.name) for moment in moments]
    hits = [(decision, word, moment) for decision, word, moment in zip(decided, right, moments, strict=True)]
    fired = [one for one in hits if one[0].fires]
    agree = [kind.name in one.answers and one.answers[kind.name].answer == said.word for said, _, one in fired]
    return Probe(
        model=profile.name,
        tau=profile.tau[kind.name],
        windows=len(moments),
        in_set=sum(decision.word is not None for decision in decided),
        fired=len(fired),
        right=sum(decision.word == word for decision, word, _ in fired),
        agree=sum(agree),
        right_all=sum(decision.word == word for decision, word, _ in hits),
        gaps=tuple(float(gap) for gap in np.quantile([moment.header.gap for moment in moments], QUANTILES)),
        clean=tuple(found),
        prefill_ms=runner.prefill_ms,
        decode_ms=runner.decode_ms,
    )


def said(builder: Builder, moment: Moment) -> str:
    """The header's first choice as text: an answer word, or the token as it is."""
    known = builder.answers.get(moment.header.top1)
    return known[1] if known else builder.decode([moment.header.top1])


def clean_windows(profile: Profile, seed: int) -> list[tuple[str, Series]]:
    """Windows that rise, fall or go nowhere, each with a little noise."""
    rng = np.random.default_rng([seed, 1])
    found: list[tuple[str, Series]] = []
    for direction, drift in (("up", CLEAN_STEP), ("down", -CLEAN_STEP), ("flat", 0.0)):
        for number in range(CLEAN_EACH):
            steps = np.arange(profile.region_bars, dtype=np.float64)
            close = np.round(100.0 + 0.1 * (drift * steps + rng.normal(0.0, 1.0, len(steps))), 3)
            opened = np.concatenate([close[:1], close[:-1]])
            times = 1_600_000_000_000_000 + _BAR_US * np.arange(len(steps), dtype=np.int64)
            high, low, volume = np.maximum(opened, close), np.minimum(opened, close), np.full(len(steps), 1e3)
            bars = BarArrays(times, opened, high, low, close, volume)
            found.append((direction, Series(direction, f"{direction.upper()}{number}", bars)))
    return found
