"""Is a model fit for the fast path? Its gate on simulated windows, its sense of direction, its speed (Table 1)."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from stream_engine.calibrate.replay import Moment, Replay
from stream_engine.config.engine import EngineSettings
from stream_engine.data.series import Series, simulated_series
from stream_engine.data.truth import truths
from stream_engine.engine.engine import Engine
from stream_engine.model.forward.runner import Runner, SegmentResult
from stream_engine.model.forward.step import Branch, Segment
from stream_engine.model.frame import BarArrays
from stream_engine.model.profile import Profile
from stream_engine.model.render.rendering import Builder
from stream_engine.process.configured_budget import budget_shape
from stream_engine.process.configured_gate import build_gate
from stream_engine.process.configured_model import load_runner, model_builder, model_files
from stream_engine.state.engine_state import new_state
from stream_engine.state.live_gate import LiveGate
from stream_engine.util.intervals import wilson

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
TAUS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
CLEAN_EACH = 4
CLEAN_STEP = 1.0
"""Drift a bar of a clean window, in standard deviations of its noise; over 32 bars that is far from flat."""

HARDLY = 0.05
"""A gate that fires on no more than this share is of no use."""

PREFILL_TOKENS = 32
"""Steps that append so many tokens tell the time of a prefill."""

DECODES = 9
"""So many steps of one token tell the time of a decode."""

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
class Fired:
    """Windows that the gate let through, of so many; of those right, and the same as the model's full path."""

    windows: int
    fired: int
    right: int
    agree: int


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found. `gate` is at the profile's tau, `over_tau` at others, `by_series` at the profile's for each
    instrument; `in_set` counts windows where the header's first choice is in the fast-answer set.

    gaps: quantiles (`QUANTILES`) of the header's gap in logits. prefill_ms: a token of many; question_ms: a
    question's entry on the resident state, where the questions of all classes share a step; decode_ms: one token
    on the resident state (T_decode of Eq. 2).
    """

    model: str
    tau: float
    gate: Fired
    in_set: int
    over_tau: dict[float, Fired]
    by_series: dict[str, Fired]
    gaps: tuple[float, ...]
    clean: tuple[Clean, ...]
    prefill_ms: float
    question_ms: float
    decode_ms: float

    @property
    def tells_directions(self) -> bool:
        """All clean windows of one direction get one word, and no other direction gets it."""
        pairs = {(window.direction, window.said) for window in self.clean}
        return len(pairs) == len({direction for direction, _ in pairs}) == len({word for _, word in pairs})

    def verdict(self) -> str:
        """One plain sentence: whether the gate will ever fire, and what it is then worth."""
        fired, windows = self.gate.fired, self.gate.windows
        share, (low, high) = fired / windows, wilson(fired, windows)
        if not fired:
            return f"The gate will never fire: it did on none of {windows} windows. Questions take the full path."
        if share <= HARDLY:
            return f"The gate will hardly ever fire: on {share:.1%} of windows [{low:.1%}, {high:.1%}]."
        worth = f"it is right in {self.gate.right / fired:.1%} of those"
        if not self.tells_directions:
            worth += ", but clean rises, falls and sideways windows do not get three different answers"
        return f"The gate fires on {share:.1%} of windows [{low:.1%}, {high:.1%}], and {worth}."


@dataclass(slots=True)
class _Timed:
    """A runner that notes each step: appended tokens, tokens of branches, branches, seconds."""

    runner: Runner
    clock: Callable[[], float] = time.perf_counter
    steps: list[tuple[int, int, int, float]] = field(default_factory=list)

    def run(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        start = self.clock()
        results = self.runner.run(segments)
        seconds = self.clock() - start
        appended = sum(len(segment.append) for segment in segments)
        entries = [len(branch.tokens) for segment in segments for branch in segment.branches]
        self.steps.append((appended, sum(entries), len(entries), seconds))
        return results

    def copy(self, source: int, target: int, count: int) -> None:
        self.runner.copy(source, target, count)

    def milliseconds(self, wanted: Iterable[float]) -> float:
        found = [1e3 * seconds for seconds in wanted]
        return median(found) if found else float("nan")

    @property
    def prefill_ms(self) -> float:
        return self.milliseconds(seconds / size for size, _, _, seconds in self.steps if size >= PREFILL_TOKENS)

    @property
    def question_ms(self) -> float:
        """Steps of whole questions; an answer of several tokens goes on with one token a step."""
        return self.milliseconds(
            seconds / branches for size, tokens, branches, seconds in self.steps if not size and tokens > branches
        )

    def decode_ms(self, builder: Builder) -> float:
        """One token behind a window of them; the first session's cells still hold one."""
        length = len(builder.prefix) + builder.profile.window_bars * builder.tokens_per_bar
        step = Segment(0, length, branches=(Branch((builder.end_token,), length),))
        first = len(self.steps)
        for _ in range(DECODES):
            self.run([step])
        return self.milliseconds(seconds for *_, seconds in self.steps[first:])


def probe(
    settings: EngineSettings,
    windows: int,
    seed: int,
    told: Callable[[int, int], None],
    recorded: Sequence[Series] = (),
) -> Probe:
    """Load the configured model and probe it at its profile's tau, on `windows` simulated windows, or on at most
    so many of each `recorded` series. Raises ConfigError where the model cannot be served."""
    settings = dataclasses.replace(settings, calibration="none", preposition="fused", promoted_questions=0)
    builder = model_builder(settings, model_files(settings))
    shape, gate = budget_shape(settings, builder), build_gate(builder)
    runner = _Timed(load_runner(settings, builder, shape))
    state = new_state(settings, builder, shape, LiveGate(gate))
    engine = Engine(settings, builder, runner, state)
    profile = builder.profile
    replay, kind, tau = Replay(engine), profile.generic_class, profile.tau[profile.generic_class.name]
    cleans = clean_windows(profile, seed)
    if recorded:
        total = sum(min(windows, len(source.bars) // (profile.window_bars + 1)) for source in recorded)
        total += len(cleans)
        stream: Iterator[Moment] = itertools.chain.from_iterable(
            replay.recorded(source, windows) for source in recorded
        )
    else:
        total = windows + len(cleans)
        stream = replay.simulated(simulated_series(seed, windows, profile.region_bars))
    moments: list[Moment] = []
    for moment in itertools.chain(stream, replay.simulated([series for _, series in cleans])):
        moments.append(moment)
        told(min(len(moments), total), total)
    moments, last = moments[: -len(cleans)], moments[-len(cleans) :]
    judged = [_judge(builder, moment, word[kind.name], kind.name) for moment, word in zip(
        moments, truths([kind], [moment.window for moment in moments]), strict=True
    )]  # fmt: skip
    return Probe(
        model=profile.name,
        tau=tau,
        gate=_fired(judged, tau),
        in_set=sum(judgement.word is not None for judgement in judged),
        over_tau={level: _fired(judged, level) for level in TAUS},
        by_series={
            name: _fired([judgement for judgement in judged if judgement.series == name], tau)
            for name in dict.fromkeys(judgement.series for judgement in judged)
        },
        gaps=tuple(float(gap) for gap in np.quantile([judgement.gap for judgement in judged], QUANTILES)),
        clean=tuple(
            Clean(direction, said(builder, moment), moment.header.gap, gate.decide(moment.header, kind.name).fires)
            for (direction, _), moment in zip(cleans, last, strict=True)
        ),
        prefill_ms=runner.prefill_ms,
        question_ms=runner.question_ms,
        decode_ms=runner.decode_ms(builder),
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """One window: the header's word where it is one of the class, its gap, the right word, the full path's."""

    series: str
    word: str | None
    gap: float
    right: str
    full: str | None


def _judge(builder: Builder, moment: Moment, right: str, kind: str) -> _Judged:
    known, full = builder.answers.get(moment.header.top1), moment.answers.get(kind)
    word = known[1] if known is not None and known[0] == kind else None
    return _Judged(
        series=moment.series,
        word=word,
        gap=moment.header.gap,
        right=right,
        full=full.answer if full is not None else None,
    )


def _fired(judged: Sequence[_Judged], tau: float) -> Fired:
    fired = [judgement for judgement in judged if judgement.word is not None and judgement.gap > tau]
    right, agree = (
        sum(judgement.word == getattr(judgement, name) for judgement in fired) for name in ("right", "full")
    )
    return Fired(len(judged), len(fired), right, agree)


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
