"""Judge a model folder on windows it never saw by plain forwards: quick, and for wordings that no service routes.

    python -m stream_engine.training.evaluate [--model DIR] [--data DIR | --simulated N]

For each class, from the generic header where it has one and from questions: coverage and accuracy over the gate's
threshold; then how often a wording held out is answered as a listed one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from stream_engine.data.recorded import recorded_series
from stream_engine.data.simulate import simulate
from stream_engine.data.statistics import right_words
from stream_engine.data.wordings import HELD_OUT, draw_symbol
from stream_engine.model.frame import BarArrays, RegionFrame
from stream_engine.model.profile import EMBEDDED, AnswerClass, read_questions
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.training.objective import Row, TrainingBatch, forward
from stream_engine.util.intervals import wilson

TAUS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)

_UNSEEN_SEED = 1_000_033


@dataclass(frozen=True, slots=True)
class EvaluationRegion:
    """An instrument's bars as a session would hold them, between one and two windows."""

    name: str
    symbol: str
    bars: BarArrays


@dataclass(frozen=True, slots=True)
class EvaluationWindow:
    """A region at one fill: its tokens, its fill in bars, the right word of each class.

    A class that the window says nothing about (volume, where no bar has any) has no right word.
    """

    name: str
    fill: int
    tokens: tuple[int, ...]
    right: dict[str, str]


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer: top-1 word ("" where top-1 is no answer of the class), gap in logits, the right word."""

    window: EvaluationWindow
    word: str
    gap: float
    right: str


@dataclass(frozen=True, slots=True)
class Rate:
    """Windows where the gate fires at `tau`, and right ones among them, with 95% Wilson intervals."""

    tau: float
    windows: int
    fired: int
    right: int

    def __str__(self) -> str:
        low, high = wilson(self.right, self.fired)
        return (
            f"tau {self.tau:.2f}  coverage {self.fired / max(1, self.windows):.4f}  "
            f"right {self.right / max(1, self.fired):.4f} [{low:.4f}, {high:.4f}]  n {self.windows}"
        )


def windows_of(builder: TokenBuilder, regions: Sequence[EvaluationRegion]) -> list[EvaluationWindow]:
    """Regions as served; one is rebuilt from its newest window where its bars leave the level range."""
    profile = builder.profile
    newest = [region.bars[len(region.bars) - profile.window_bars :] for region in regions]
    closes = np.array([latest.close for latest in newest])
    volumes = np.array([latest.volume for latest in newest])
    right = right_words(profile.classes, closes, volumes)
    windows = []
    for region, latest, words in zip(regions, newest, right, strict=True):
        bars, frame = region.bars, RegionFrame.fit(region.symbol, region.bars)
        if not frame.fits(bars.close).all():
            bars, frame = latest, RegionFrame.fit(region.symbol, latest)
        tokens = (*builder.prefix, *builder.anchor(frame), *builder.bars(frame, bars).ravel().tolist())
        windows.append(EvaluationWindow(region.name, len(bars), tokens, words))
    return windows


def regions_of(
    builder: TokenBuilder, name: str, symbol: str, bars: BarArrays, most: int
) -> Iterator[EvaluationRegion]:
    """Up to `most` regions evenly over the series, every fill from one to two windows in turn."""
    profile = builder.profile
    fills = profile.region_bars - profile.window_bars + 1
    last = len(bars) - profile.region_bars
    for turn, start in enumerate(np.unique(np.linspace(0, last, most).astype(int)).tolist()):
        fill = profile.window_bars + (turn * 7) % fills
        yield EvaluationRegion(name, symbol, bars[start : start + fill])


def answer(
    network: LlamaForCausalLM,
    builder: TokenBuilder,
    windows: Sequence[EvaluationWindow],
    answer_class: AnswerClass,
    question: str | None,
    batch: int = 64,
) -> list[Judged]:
    """Judge the answers of class `one` to a question, or from the generic header where it is None.

    Windows that have no right word of the class are left out.
    """
    entry = builder.generic_entry if question is None else builder.query_entry(question)
    asked = [window for window in windows if answer_class.name in window.right]
    judged: list[Judged] = []
    for part in range(0, len(asked), batch):
        group = asked[part : part + batch]
        rows = [window.tokens + entry for window in group]
        ends = torch.tensor([len(row) for row in rows]) - 1
        width = int(ends.max()) + 1
        tokens = torch.tensor([[*row, *[builder.end_token] * (width - len(row))] for row in rows])
        with torch.inference_mode():
            hidden = network.model(input_ids=tokens, use_cache=False).last_hidden_state
            top = network.lm_head(hidden[torch.arange(len(rows)), ends]).topk(2, dim=-1)
        gaps = (top.values[:, 0] - top.values[:, 1]).tolist()
        for window, first, gap in zip(group, top.indices[:, 0].tolist(), gaps, strict=True):
            kind, word = builder.answers.get(first, ("", ""))
            judged.append(
                Judged(window, word if kind == answer_class.name else "", gap, window.right[answer_class.name])
            )
    return judged


def rate(judged: Sequence[Judged], tau: float) -> Rate:
    """Coverage and accuracy of the gate: gap above `tau` and top-1 an answer of the class (`Eq. 12`)."""
    fired = [judgement for judgement in judged if judgement.gap > tau and judgement.word]
    return Rate(tau, len(judged), len(fired), sum(judgement.word == judgement.right for judgement in fired))


def agreement(
    network: LlamaForCausalLM,
    builder: TokenBuilder,
    windows: Sequence[EvaluationWindow],
    answer_class: AnswerClass,
    questions: Sequence[str],
) -> dict[str, float]:
    """Share of windows in which each of `questions` is answered as the class's first listed wording.

    All are asked in one pass a window, as branches behind its tokens.
    """
    entries = [builder.query_entry(text) for text in (builder.profile.questions[answer_class.name][0], *questions)]
    same = []
    for window in windows:
        if answer_class.name in window.right:
            tops = _asked_together(network, window, entries)
            same.append([top == tops[0] for top in tops[1:]])
    return dict(zip(questions, np.mean(same, axis=0).tolist(), strict=True))


def _asked_together(
    network: LlamaForCausalLM, window: EvaluationWindow, entries: Sequence[tuple[int, ...]]
) -> list[int]:
    """Top-1 token at the end of each entry."""
    row = Row([*window.tokens])
    for entry in entries:
        row.entry(entry, len(window.tokens), 0, 0)
    unused = torch.zeros(1, 0, dtype=torch.int64)
    tokens, positions, cut, branch, ends = (
        torch.tensor([column]) for column in (row.tokens, row.positions, row.cut, row.branch, row.answer_at)
    )
    batch = TrainingBatch(
        tokens=tokens,
        positions=positions,
        cut=cut,
        branch=branch,
        answer_at=ends,
        answer=unused,
        entry_kind=unused,
        bar_at=unused,
        bar_labels=unused,
    )
    with torch.inference_mode():
        logits, _ = forward(network, batch, torch.float32)
    return [int(top) for top in logits[0].argmax(dim=-1)]


def load_network(directory: Path) -> LlamaForCausalLM:
    """The folder's model in fp32 for evaluation."""
    network = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return network.eval()


def simulated_regions(builder: TokenBuilder, count: int, seed: int = _UNSEEN_SEED) -> list[EvaluationRegion]:
    """One region of each of `count` simulated instruments that no training step draws, every fill in turn."""
    profile, rng = builder.profile, np.random.default_rng(seed)
    bars = simulate(rng, count, profile.region_bars)
    fills = profile.region_bars - profile.window_bars + 1
    return [
        EvaluationRegion("simulated", draw_symbol(rng), bars.series(row)[: profile.window_bars + row % fills])
        for row in range(count)
    ]


def report(builder: TokenBuilder, network: LlamaForCausalLM, windows: Sequence[EvaluationWindow]) -> None:
    """Print the tables of every class."""
    generic = builder.profile.generic_class
    print(f"{len(windows)} windows\ngeneric header, {generic.name}:")
    header = answer(network, builder, windows, generic, None)
    for tau in TAUS:
        print(" ", rate(header, tau))
    held_out = read_questions(HELD_OUT)
    for answer_class in builder.profile.classes:
        questions = builder.profile.questions[answer_class.name]
        asked = [
            answered
            for at, question in enumerate(questions)
            for answered in answer(network, builder, windows[at :: len(questions)], answer_class, question)
        ]
        print(f"questions, {answer_class.name}:")
        for tau in TAUS:
            print(" ", rate(asked, tau))
        shares = agreement(network, builder, windows[::8], answer_class, held_out[answer_class.name])
        worst = min(shares, key=lambda question: shares[question])
        mean = sum(shares.values()) / len(shares)
        print(f"  wordings held out, answered as a listed one: {mean:.4f}; {worst!r}: {shares[worst]:.4f}")


def main(arguments: list[str] | None = None) -> None:
    """Evaluate a model folder from the command line."""
    parser = argparse.ArgumentParser(description="Judge a model on recorded windows it never saw.")
    parser.add_argument("--model", type=Path, default=EMBEDDED)
    parser.add_argument("--data", type=Path, help="folder of recorded sample files")
    parser.add_argument("--windows", type=int, default=400, help="at most this many windows an instrument")
    parser.add_argument("--simulated", type=int, help="this many simulated windows instead of recorded ones")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    builder = TokenBuilder.load(options.model)
    if options.simulated:
        regions = simulated_regions(builder, options.simulated)
    else:
        recorded = recorded_series(options.data)
        regions = [region for series in recorded for region in regions_of(builder, *series, options.windows)]
    report(builder, load_network(options.model), windows_of(builder, regions))


if __name__ == "__main__":
    main(sys.argv[1:])
