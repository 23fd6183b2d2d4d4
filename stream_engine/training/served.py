"""Judge a model as it is served: recorded bars through the engine, across window swaps.

    python -m stream_engine.training.served [--model DIR] [--data DIR]

Bars come in records of one window and a bar, so that windows do not overlap and the region is judged at every fill
in turn. At each commit: the generic header's ready distribution, and a question of every class on the full path;
against the statistic of the newest bars (the truth), and the header also against the full path's own answer.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stream_engine.assemble import build_engine
from stream_engine.config import EngineSettings
from stream_engine.engine import Engine
from stream_engine.entry import GENERIC_KEY
from stream_engine.intervals import wilson
from stream_engine.messages import Answer, Assign, Bar, Batch, ErrorReply, Query, Record
from stream_engine.model.frame import BarArrays, Floats
from stream_engine.model.profile import AnswerClass
from stream_engine.training.ceiling import read_back
from stream_engine.training.evaluate import TAUS
from stream_engine.training.recorded import recorded_series
from stream_engine.training.statistics import right_words

HEADER = "header"
"""Name of the generic header's answers, beside those of the classes' questions."""

LEAST_WINDOWS = 20
"""Instruments with fewer windows are not judged."""


@dataclass(frozen=True, slots=True)
class Served:
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


def bars_of(series: BarArrays) -> list[Bar]:
    """Rows of a series."""
    columns = (series.time_us, series.open, series.high, series.low, series.close, series.volume)
    return [Bar(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def records_of(bars: Sequence[Bar], symbol: str, window: int) -> Iterator[Record]:
    """Records of a window's bars and then of one more each: windows apart, every fill of the region in turn."""
    for offset, start in enumerate(range(0, len(bars) - window + 1, window + 1)):
        first = max(0, start - 1)
        yield Record(symbol, offset, offset, tuple(bars[first : start + window]))


def serve_series(engine: Engine, name: str, symbol: str, series: BarArrays, partition: int = 0) -> list[Served]:
    """Commit a series to a session of `engine` and judge every commit."""
    profile = engine.builder.profile
    engine.ingest.assign(Assign(name, partition, 1, 0, 0))
    asked: list[tuple[int, dict[str, tuple[str, float]]]] = []
    shown: list[tuple[Floats, Floats]] = []
    newest: list[BarArrays] = []
    for record in records_of(bars_of(series), symbol, profile.window_bars):
        refused = engine.ingest.take(Batch(name, partition, 1, record.offset - 1, record.offset, 1, (record,)))
        assert refused is None, refused
        engine.run_until_idle()
        engine.ingest.settle()
        session = engine.sessions[symbol]
        region = BarArrays.from_rows(stored.bar for stored in session.region.bars)
        frame = session.region.frame
        assert frame is not None
        closes, volumes = read_back(frame, region)
        shown.append((closes[-profile.window_bars :], volumes[-profile.window_bars :]))
        newest.append(region[len(region) - profile.window_bars :])
        asked.append((len(region), _answers(engine, symbol, record.offset)))
    engine.drop_session(engine.sessions[symbol])
    right = right_words(
        profile.classes, np.array([one.close for one in newest]), np.array([one.volume for one in newest])
    )
    ceiling = right_words(profile.classes, *(np.array(column) for column in zip(*shown, strict=True)))
    served: list[Served] = []
    for (fill, answers), truth, seen in zip(asked, right, ceiling, strict=True):
        for kind, (word, gap) in answers.items():
            one = profile.generic_class.name if kind == HEADER else kind
            if one in truth:
                full = answers[one][0] if kind == HEADER else None
                served.append(Served(name, kind, fill, word, gap, truth[one], seen.get(one, ""), full))
    return served


def _answers(engine: Engine, symbol: str, turn: int) -> dict[str, tuple[str, float]]:
    """Word and gap of the header and of one listed wording of each class, another one each `turn`.

    The word is "" where the model's answer is none of the class."""
    profile = engine.builder.profile
    ready = engine.sessions[symbol].ready[GENERIC_KEY]
    kind, word = engine.builder.answers.get(ready.top1, ("", ""))
    found = {HEADER: (word if kind == profile.generic_class.name else "", ready.gap)}
    for one in profile.classes:
        listed = profile.questions[one.name]
        replies: list[Answer | ErrorReply] = []
        engine.queries.ask(Query(symbol, listed[turn % len(listed)], "full"), replies.append)
        engine.run_until_idle()
        (answer,) = replies
        assert isinstance(answer, Answer), answer
        found[one.name] = (answer.answer if answer.answer in one.words else "", answer.gap)
    return found


def line(served: Sequence[Served], tau: float) -> str:
    """Coverage, accuracy against the truth and, for the header, against the full path, at one tau."""
    fired = [one for one in served if one.gap > tau and one.word]
    right = sum(one.word == one.right for one in fired)
    low, high = wilson(right, len(fired))
    text = (
        f"n {len(served):5d}  coverage {len(fired) / max(1, len(served)):.4f}  "
        f"right {right / max(1, len(fired)):.4f} [{low:.4f}, {high:.4f}]"
    )
    asked = [one for one in fired if one.full is not None]
    if asked:
        text += f"  false accepts {sum(one.word != one.full for one in asked)}/{len(asked)}"
    return text


def baseline(served: Sequence[Served], one: AnswerClass) -> str:
    """Shares of the right words, the share of the commonest, and the ceiling."""
    counts, count = Counter(answer.right for answer in served), max(1, len(served))
    shares = " ".join(f"{word} {counts[word] / count:.3f}" for word in one.words)
    ceiling = sum(answer.ceiling == answer.right for answer in served) / count
    return f"{shares}  majority {max(counts.values(), default=0) / count:.3f}  ceiling {ceiling:.3f}"


def report(served: Sequence[Served], classes: Sequence[AnswerClass], taus: dict[str, float], window: int) -> str:
    """The tables of the header and of each class: over tau, by instrument, by fill of the region."""
    lines = []
    generic = next(one for one in classes if one.generic)
    for kind, one in ((HEADER, generic), *((one.name, one) for one in classes)):
        mine = [answer for answer in served if answer.kind == kind]
        tau = taus[one.name]
        lines.append(f"{kind} ({one.name}), over tau:  {baseline(mine, one)}")
        lines += [f"  tau {level:.2f}   {line(mine, level)}" for level in TAUS]
        lines.append(f"{kind}, tau {tau:g}, by instrument:")
        for name in dict.fromkeys(answer.name for answer in mine):
            part = [answer for answer in mine if answer.name == name]
            lines.append(f"  {name:12s} {line(part, tau)}\n  {'':12s}   {baseline(part, one)}")
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
        "--most", type=int, default=20_000, help="at most this many bars an instrument, the latest"
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    engine = build_engine(EngineSettings(model=options.model, max_sessions=1, threads=options.threads))
    profile = engine.builder.profile
    served: list[Served] = []
    for name, symbol, series in recorded_series(options.data):
        latest = series[max(0, len(series) - options.most) :]
        if len(latest) // (profile.window_bars + 1) >= LEAST_WINDOWS:
            served += serve_series(engine, name, symbol, latest)
    print(report(served, profile.classes, dict(profile.tau), profile.window_bars))


if __name__ == "__main__":
    main()
