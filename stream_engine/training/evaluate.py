"""Judge a model folder on recorded windows by plain forwards: coverage and accuracy over the gate's threshold."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from stream_engine.intervals import wilson
from stream_engine.model.builder import TokenBuilder
from stream_engine.model.frame import BarArrays, RegionFrame
from stream_engine.model.profile import EMBEDDED, AnswerClass
from stream_engine.training.recorded import recorded_series
from stream_engine.training.statistics import STATISTICS

TAUS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)


@dataclass(frozen=True, slots=True)
class Window:
    """A region at one fill: its tokens, its fill in bars, the right word of each class."""

    name: str
    fill: int
    tokens: tuple[int, ...]
    right: dict[str, str]


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer: top-1 word ("" where top-1 is no answer of the class), gap in logits, the right word."""

    window: Window
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
            f"tau {self.tau:.1f}  coverage {self.fired / max(1, self.windows):.4f}  "
            f"right {self.right / max(1, self.fired):.4f} [{low:.4f}, {high:.4f}]  n {self.windows}"
        )


def window_of(builder: TokenBuilder, name: str, symbol: str, region: BarArrays) -> Window:
    """The region as served; rebuilt from its newest window where its bars leave the level range."""
    profile = builder.profile
    frame = RegionFrame.fit(symbol, region)
    if not frame.fits(region.close).all():
        region = region[len(region) - profile.window_bars :]
        frame = RegionFrame.fit(symbol, region)
    tokens = (*builder.prefix, *builder.anchor(frame), *builder.bars(frame, region).ravel().tolist())
    closes = region.close[-profile.window_bars :]
    right = {one.name: one.words[int(STATISTICS[one.name](closes).index)] for one in profile.classes}
    return Window(name, len(region), tokens, right)


def windows_of(
    builder: TokenBuilder, name: str, symbol: str, bars: BarArrays, most: int
) -> Iterable[Window]:
    """Up to `most` regions evenly over the series, every fill from one to two windows in turn."""
    profile = builder.profile
    fills = profile.region_bars - profile.window_bars + 1
    last = len(bars) - profile.region_bars
    for turn, start in enumerate(np.unique(np.linspace(0, last, most).astype(int)).tolist()):
        fill = profile.window_bars + (turn * 7) % fills
        yield window_of(builder, name, symbol, bars[start : start + fill])


def answer(
    network: LlamaForCausalLM,
    builder: TokenBuilder,
    windows: Sequence[Window],
    one: AnswerClass,
    question: str | None,
    batch: int = 64,
) -> list[Judged]:
    """Judge the answers of class `one` to a question, or from the generic header where it is None."""
    entry = builder.generic_entry if question is None else builder.query_entry(question)
    judged: list[Judged] = []
    for part in range(0, len(windows), batch):
        group = windows[part : part + batch]
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
            judged.append(Judged(window, word if kind == one.name else "", gap, window.right[one.name]))
    return judged


def rate(judged: Sequence[Judged], tau: float) -> Rate:
    """Coverage and accuracy of the gate: gap above `tau` and top-1 an answer of the class (`Eq. 12`)."""
    fired = [one for one in judged if one.gap > tau and one.word]
    return Rate(tau, len(judged), len(fired), sum(one.word == one.right for one in fired))


def load_network(directory: Path) -> LlamaForCausalLM:
    """The folder's model in fp32 for evaluation."""
    network = LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return network.eval()


def report(directory: Path, data: Path | None, most: int) -> None:
    """Print the tables of every class, and the generic header's by instrument and fill."""
    builder, network = TokenBuilder.load(directory), load_network(directory)
    windows = [
        window for series in recorded_series(data) for window in windows_of(builder, *series, most)
    ]
    generic = builder.profile.generic_class
    judged = answer(network, builder, windows, generic, None)
    print(f"generic header, {generic.name}: {len(windows)} windows")
    for tau in TAUS:
        print(" ", rate(judged, tau))
    chosen = builder.profile.tau[generic.name]
    for name in dict.fromkeys(window.name for window in windows):
        print(f"  {name:12s}", rate([one for one in judged if one.window.name == name], chosen))
    for low in range(builder.profile.window_bars, builder.profile.region_bars + 1, 8):
        part = [one for one in judged if low <= one.window.fill < low + 8]
        print(f"  fill {low}..{low + 7}", rate(part, chosen))
    for one in builder.profile.classes:
        questions = builder.profile.questions[one.name]
        asked = [
            answered
            for at, question in enumerate(questions)
            for answered in answer(network, builder, windows[at :: len(questions)], one, question)
        ]
        print(f"questions, {one.name}:")
        for tau in TAUS:
            print(" ", rate(asked, tau))
    by_question = answer(network, builder, windows, generic, builder.profile.questions[generic.name][0])
    fired = [(a, b) for a, b in zip(judged, by_question, strict=True) if a.gap > chosen and a.word]
    differ = sum(a.word != b.word for a, b in fired)
    print(f"fast answers that differ from the question's: {differ} of {len(fired)}")


def main(arguments: list[str] | None = None) -> None:
    """Evaluate a model folder from the command line."""
    parser = argparse.ArgumentParser(description="Judge a model on recorded windows it never saw.")
    parser.add_argument("--model", type=Path, default=EMBEDDED)
    parser.add_argument("--data", type=Path, help="folder of recorded sample files")
    parser.add_argument("--windows", type=int, default=400, help="at most this many windows an instrument")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    report(options.model, options.data, options.windows)


if __name__ == "__main__":
    main(sys.argv[1:])
