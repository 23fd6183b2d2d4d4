"""Judge a model as it is served: recorded bars through the engine, across window swaps.

    python -m stream_engine.training.served [--model DIR] [--data DIR]

Windows do not overlap, and the region is judged at every fill in turn. At each commit: the generic header's ready
distribution, and a question of every class on the full path; against the statistic of the newest bars (the truth),
and the header also against the full path's own answer.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stream_engine.calibrate.replay import Moment, Replay
from stream_engine.config.engine import EngineSettings
from stream_engine.data.recorded import recorded_series
from stream_engine.data.series import Series
from stream_engine.data.statistics import right_words
from stream_engine.data.truth import truths
from stream_engine.engine.engine import Engine
from stream_engine.model.frame import Floats, RegionFrame
from stream_engine.model.profile import AnswerClass
from stream_engine.process.build import build_engine
from stream_engine.training.ceiling import read_back
from stream_engine.training.evaluate import TAUS
from stream_engine.util.intervals import wilson

HEADER = "header"
"""Name of the generic header's answers, beside those of the classes' questions."""

LEAST_WINDOWS = 20
"""Instruments with fewer windows are not judged."""


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """One answer: `kind` is `HEADER` or the class of the question, `fill` the region's bars, `word` and `gap` (in
    logits) the answer's, `right` the true word, `ceiling` the one that the rendered tokens tell; for the header
    `full` is the full path's word for its class."""

    name: str
    kind: str
    fill: int
    word: str
    gap: float
    right: str
    ceiling: str
    full: str | None = None


def serve_series(engine: Engine, series: Series, most: int) -> list[ServedAnswer]:
    """Commit the last `most` windows of a series to a session of `engine` and judge every commit.

    The engine must hold no other sessions."""
    profile = engine.builder.profile
    moments = list(Replay(engine).recorded(series, most))
    seen = [
        _read_back(series, moment, number - len(moments), profile.window_bars)
        for number, moment in enumerate(moments)
    ]
    right = truths(profile.classes, [moment.window for moment in moments])
    ceiling = right_words(profile.classes, *(np.array(column) for column in zip(*seen, strict=True)))
    served: list[ServedAnswer] = []
    for moment, truth, told in zip(moments, right, ceiling, strict=True):
        for kind, (word, gap) in _answers(engine, moment).items():
            class_name = profile.generic_class.name if kind == HEADER else kind
            if class_name in truth:
                full = moment.answers[class_name].answer if kind == HEADER else None
                served.append(
                    ServedAnswer(
                        name=series.name,
                        kind=kind,
                        fill=moment.fill,
                        word=word,
                        gap=gap,
                        right=truth[class_name],
                        ceiling=told.get(class_name, ""),
                        full=full,
                    )
                )
    return served


def _answers(engine: Engine, moment: Moment) -> dict[str, tuple[str, float]]:
    """Word and gap of the header and of each class's question; "" where the word is none of the class."""
    profile = engine.builder.profile
    kind, word = engine.builder.answers.get(moment.header.top1, ("", ""))
    found = {HEADER: (word if kind == profile.generic_class.name else "", moment.header.gap)}
    for answer_class in profile.classes:
        answer = moment.answers[answer_class.name]
        found[answer_class.name] = (answer.answer if answer.answer in answer_class.words else "", answer.gap)
    return found


def _read_back(series: Series, moment: Moment, before_end: int, window: int) -> tuple[Floats, Floats]:
    """Closes and volumes [window] as the tokens of the moment's region show them; `before_end` counts the windows
    from the series' end, -1 for the last."""
    end = len(series.bars) + (before_end + 1) * (window + 1)
    region = series.bars[end - moment.fill : end]
    closes, volumes = read_back(RegionFrame.fit(series.symbol, region), region)
    return closes[-window:], volumes[-window:]


def line(served: Sequence[ServedAnswer], tau: float) -> str:
    """Coverage, accuracy against the truth and, for the header, against the full path, at one tau."""
    fired = [asking for asking in served if asking.gap > tau and asking.word]
    right = sum(asking.word == asking.right for asking in fired)
    low, high = wilson(right, len(fired))
    text = (
        f"n {len(served):5d}  coverage {len(fired) / max(1, len(served)):.4f}  "
        f"right {right / max(1, len(fired)):.4f} [{low:.4f}, {high:.4f}]"
    )
    asked = [asking for asking in fired if asking.full is not None]
    if asked:
        text += f"  false accepts {sum(asking.word != asking.full for asking in asked)}/{len(asked)}"
    return text


def baseline(served: Sequence[ServedAnswer], answer_class: AnswerClass) -> str:
    """Shares of the right words, the share of the commonest, and the ceiling."""
    counts, count = Counter(answer.right for answer in served), max(1, len(served))
    shares = " ".join(f"{word} {counts[word] / count:.3f}" for word in answer_class.words)
    ceiling = sum(answer.ceiling == answer.right for answer in served) / count
    return f"{shares}  majority {max(counts.values(), default=0) / count:.3f}  ceiling {ceiling:.3f}"


def report(
    served: Sequence[ServedAnswer], classes: Sequence[AnswerClass], taus: dict[str, float], window: int
) -> str:
    """The tables of the header and of each class: over tau, by instrument, by fill of the region."""
    lines = []
    generic = next(answer_class for answer_class in classes if answer_class.generic)
    for kind, answer_class in (
        (HEADER, generic),
        *((answer_class.name, answer_class) for answer_class in classes),
    ):
        mine = [answer for answer in served if answer.kind == kind]
        tau = taus[answer_class.name]
        lines.append(f"{kind} ({answer_class.name}), over tau:  {baseline(mine, answer_class)}")
        lines += [f"  tau {level:.2f}   {line(mine, level)}" for level in TAUS]
        lines.append(f"{kind}, tau {tau:g}, by instrument:")
        for name in dict.fromkeys(answer.name for answer in mine):
            part = [answer for answer in mine if answer.name == name]
            lines.append(f"  {name:12s} {line(part, tau)}\n  {'':12s}   {baseline(part, answer_class)}")
        lines.append(f"{kind}, tau {tau:g}, by fill of the region:")
        for low in range(window, 2 * window, 8):
            high = low + 7 + (low + 8 == 2 * window)
            part = [answer for answer in mine if low <= answer.fill <= high]
            lines.append(f"  {low}..{high} bars   {line(part, tau)}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Judge a model folder from the command line."""
    parser = argparse.ArgumentParser(description="Judge a model as it is served, on recorded bars it never saw.")
    parser.add_argument("--model", default="embedded", help="'embedded' or a model folder")
    parser.add_argument("--data", type=Path, help="folder of recorded sample files")
    parser.add_argument(
        "--most", type=int, default=600, help="at most this many windows an instrument, the latest"
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    engine = build_engine(EngineSettings(model=options.model, threads=options.threads))
    profile = engine.builder.profile
    served: list[ServedAnswer] = []
    for name, symbol, bars in recorded_series(options.data):
        if len(bars) // (profile.window_bars + 1) >= LEAST_WINDOWS:
            served += serve_series(engine, Series(name, symbol, bars), options.most)
    print(report(served, profile.classes, dict(profile.tau), profile.window_bars))


if __name__ == "__main__":
    main()
