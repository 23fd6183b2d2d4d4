"""Judge a model as it is served: recorded bars through the engine, one by one, across window swaps.

    python -m stream_engine.training.served [--model DIR] [--data DIR]

Every commit is judged: the generic header's ready distribution against the numeric truth (the statistic of
the last ``window_bars`` closes), and, at every ``--full-every``-th of them, against the model's own full path.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stream_engine.assemble import build_engine
from stream_engine.config import EngineSettings
from stream_engine.engine import Engine
from stream_engine.entry import GENERIC_KEY
from stream_engine.intervals import wilson
from stream_engine.messages import Answer, Assign, Bar, Batch, ErrorReply, Query, Record
from stream_engine.model.frame import BarArrays
from stream_engine.training.evaluate import TAUS
from stream_engine.training.recorded import recorded_series
from stream_engine.training.statistics import STATISTICS


@dataclass(frozen=True, slots=True)
class Served:
    """One commit: the region's fill in bars, the header's top-1 word and gap in logits, the right word, and
    the full path's answer where it was asked for."""

    name: str
    fill: int
    word: str
    gap: float
    right: str
    full: str | None


def bars_of(series: BarArrays) -> list[Bar]:
    """Rows of a series."""
    columns = (series.time_us, series.open, series.high, series.low, series.close, series.volume)
    return [Bar(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def serve_series(
    engine: Engine, name: str, symbol: str, series: BarArrays, full_every: int, partition: int = 0
) -> list[Served]:
    """Commit a series bar by bar to a session of ``engine`` and judge every commit of a complete window."""
    profile = engine.builder.profile
    generic = profile.generic_class
    question = profile.questions[generic.name][0]
    engine.ingest.assign(Assign(name, partition, 1, 0, 0))
    served: list[Served] = []
    for offset, bar in enumerate(bars_of(series)):
        record = Record(symbol, offset, offset, (bar,))
        refused = engine.ingest.take(Batch(name, partition, 1, offset - 1, offset, 1, (record,)))
        assert refused is None, refused
        engine.run_until_idle()
        engine.ingest.settle()
        session = engine.sessions[symbol]
        if session.window < profile.window_bars:
            continue
        ready = session.ready[GENERIC_KEY]
        kind, word = engine.builder.answers.get(ready.top1, ("", ""))
        closes = np.array([stored.bar.close for stored in session.region.bars[-profile.window_bars :]])
        right = generic.words[int(STATISTICS[generic.name](closes).index)]
        full = None
        if offset % full_every == 0:
            replies: list[Answer | ErrorReply] = []
            engine.queries.ask(Query(symbol, question, "full"), replies.append)
            engine.run_until_idle()
            (answer,) = replies
            assert isinstance(answer, Answer), answer
            full = answer.answer
        served.append(
            Served(name, len(session.region), word if kind == generic.name else "", ready.gap, right, full)
        )
    engine.drop_session(engine.sessions[symbol])
    return served


def line(served: Sequence[Served], tau: float) -> str:
    """Coverage, accuracy against the truth, and false accepts against the full path, at one tau."""
    fired = [one for one in served if one.gap > tau and one.word]
    right = sum(one.word == one.right for one in fired)
    asked = [one for one in fired if one.full is not None]
    false_accepts = sum(one.word != one.full for one in asked)
    low, high = wilson(right, len(fired))
    return (
        f"n {len(served):5d}  coverage {len(fired) / max(1, len(served)):.4f}  "
        f"right {right / max(1, len(fired)):.4f} [{low:.4f}, {high:.4f}]  "
        f"false accepts {false_accepts}/{len(asked)}"
    )


def report(served: Sequence[Served], tau: float, window_bars: int, region_bars: int) -> str:
    """The table: over tau, by instrument, by fill of the region, and the shares of the right words."""
    lines = ["all instruments, over tau:"]
    lines += [f"  tau {level:.1f}   {line(served, level)}" for level in TAUS]
    lines.append(f"by instrument, tau {tau:g}:")
    for name in dict.fromkeys(one.name for one in served):
        lines.append(f"  {name:12s} {line([one for one in served if one.name == name], tau)}")
    lines.append(f"by fill of the region, tau {tau:g}:")
    for low in range(window_bars, region_bars + 1, 8):
        lines.append(f"  {low:2d}..{low + 7:2d}       {line([o for o in served if low <= o.fill < low + 8], tau)}")
    shares = {word: sum(one.right == word for one in served) / max(1, len(served)) for word in _words(served)}
    lines.append("right words: " + ", ".join(f"{word} {share:.3f}" for word, share in shares.items()))
    return "\n".join(lines)


def _words(served: Sequence[Served]) -> list[str]:
    return sorted({one.right for one in served})


def main(arguments: list[str] | None = None) -> None:
    """Judge a model folder from the command line."""
    parser = argparse.ArgumentParser(description="Judge a model as it is served, on recorded bars it never saw.")
    parser.add_argument("--model", default="embedded", help="'embedded' or a model folder")
    parser.add_argument("--data", type=Path, help="folder of recorded sample files")
    parser.add_argument("--full-every", type=int, default=5, help="ask the full path at every n-th commit")
    parser.add_argument("--most", type=int, default=1500, help="at most this many bars an instrument, the latest")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    engine = build_engine(EngineSettings(model=options.model, max_sessions=1, threads=options.threads))
    served: list[Served] = []
    for name, symbol, series in recorded_series(options.data):
        latest = series[max(0, len(series) - options.most) :]
        served += serve_series(engine, name, symbol, latest, options.full_every)
    profile = engine.builder.profile
    tau = profile.tau[profile.generic_class.name]
    print(report(served, tau, profile.window_bars, profile.region_bars))


if __name__ == "__main__":
    main()
