"""Series through the engine, as they are served: what the decision points say, window after window.

Records hold several bars, so that only the commits that are looked at run the model: a region depends on its bars
alone, never on how they were grouped. Windows do not overlap, and are looked at at every fill of the region in
turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stream_engine.data.recorded import bars_of
from stream_engine.data.series import Series
from stream_engine.decision.entry import GENERIC_KEY
from stream_engine.decision.ready import ReadyDistribution
from stream_engine.engine.engine import Engine
from stream_engine.messages import Answer, Assign, Batch, ErrorReply, Query, Record, Revoke
from stream_engine.model.frame import BarArrays
from stream_engine.session.session import Session

SIMULATED = "simulated"
"""Topic of the simulated series."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One window: number in its series, fill of the region and version of the session, the bars asked about, the
    generic header's ready distribution, and the full path's answer to a question of each class."""

    series: str
    symbol: str
    number: int
    fill: int
    version: int
    event_time_us: int
    window: BarArrays
    header: ReadyDistribution
    answers: dict[str, Answer]


class Replay:
    """One engine, used for series after series. It must hold no other sessions. ``at_once`` of simulated series
    share its steps."""

    def __init__(self, engine: Engine, at_once: int = 1) -> None:
        self._engine = engine
        self._at_once = at_once
        self._profile = engine.builder.profile

    def recorded(self, series: Series, most: int) -> Iterator[Moment]:
        """The last ``most`` windows of a series, one session across its window swaps.

        From one moment to the next there is one bar more than a window: fills 32, 33, 34, ... where W = 32."""
        window = self._profile.window_bars
        count = min(most, (len(series.bars) - window) // (window + 1) + 1)
        if count < 1:
            return
        bars = bars_of(series.bars[len(series.bars) - (count - 1) * (window + 1) - window :])
        self._engine.assign(Assign(topic=series.name, partition=0, generation=1, start=0, live_from=0))
        start = 0
        for number in range(count):
            end = window + number * (window + 1)
            self._commit(series.name, [Record(series.symbol, number, number, tuple(bars[start:end]))])
            yield from self._moments([series], [number])
            start = end
        self._leave(series.name)

    def simulated(self, series: Sequence[Series], first: int = 0) -> Iterator[Moment]:
        """One window of each series, at the fill that is its number's turn."""
        window, fills = self._profile.window_bars, self._profile.region_bars - self._profile.window_bars + 1
        self._engine.assign(Assign(topic=SIMULATED, partition=0, generation=1, start=0, live_from=0))
        for at, group in _groups(series, self._at_once):
            numbers = list(range(first + at, first + at + len(group)))
            records = [
                Record(sample.symbol, at + n, at + n, tuple(bars_of(sample.bars[: window + numbers[n] % fills])))
                for n, sample in enumerate(group)
            ]
            self._commit(SIMULATED, records)
            yield from self._moments(group, numbers)
            for sample in group:
                self._engine.drop_session(self._engine.sessions[sample.symbol])
        self._leave(SIMULATED)

    def _commit(self, topic: str, records: list[Record]) -> None:
        first, last = records[0].offset, records[-1].offset
        refused = self._engine.ingest.take(
            Batch(
                topic=topic,
                partition=0,
                generation=1,
                follows=first - 1,
                last=last,
                consumed=len(records),
                records=tuple(records),
            )
        )
        assert refused is None, refused
        self._engine.run_until_idle()
        self._engine.ingest.settle()

    def _leave(self, topic: str) -> None:
        self._engine.revoke(Revoke(topic, 0, 1))

    def _moments(self, series: Sequence[Series], numbers: Sequence[int]) -> list[Moment]:
        """The header's distributions are taken before the questions are asked; these share their steps. A session
        whose bars are too few for a whole window has nothing to look at."""
        headers = [self._engine.sessions[sample.symbol].ready[GENERIC_KEY] for sample in series]
        answers = self._ask(series, numbers)
        return [
            self._moment(sample, session, number, header, answer)
            for sample, number, header, answer in zip(series, numbers, headers, answers, strict=True)
            if (session := self._engine.sessions[sample.symbol]).window == self._profile.window_bars
        ]

    def _ask(self, series: Sequence[Series], numbers: Sequence[int]) -> list[dict[str, Answer]]:
        """The full path's answers by class, each to the wording of the class whose turn it is."""
        asked: list[tuple[int, str, list[Answer | ErrorReply]]] = []
        for at, (sample, number) in enumerate(zip(series, numbers, strict=True)):
            for kind in self._profile.classes:
                listed = self._profile.questions.get(kind.name, ())
                if listed:
                    replies: list[Answer | ErrorReply] = []
                    question = listed[number % len(listed)]
                    self._engine.queries.ask(Query(sample.symbol, question, "full"), replies.append)
                    asked.append((at, kind.name, replies))
        self._engine.run_until_idle()
        answers: list[dict[str, Answer]] = [{} for _ in series]
        for at, name, (reply,) in asked:
            assert isinstance(reply, Answer), reply
            answers[at][name] = reply
        return answers

    def _moment(
        self, series: Series, session: Session, number: int, header: ReadyDistribution, answers: dict[str, Answer]
    ) -> Moment:
        stored = session.region.bars[-self._profile.window_bars :]
        return Moment(
            series=series.name,
            symbol=series.symbol,
            number=number,
            fill=len(session.region),
            version=session.version,
            event_time_us=stored[-1].bar.time_us,
            window=BarArrays.from_rows(stored_bar.bar for stored_bar in stored),
            header=header,
            answers=answers,
        )


def _groups(series: Sequence[Series], most: int) -> Iterator[tuple[int, list[Series]]]:
    """Runs of series with distinct symbols, at most so many together, and where each begins."""
    group: list[Series] = []
    for at, sample in enumerate(series):
        if len(group) == most or any(sample.symbol == other.symbol for other in group):
            yield at - len(group), group
            group = []
        group.append(sample)
    if group:
        yield len(series) - len(group), group
