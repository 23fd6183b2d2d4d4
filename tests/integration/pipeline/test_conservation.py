"""Every sample file, blemishes and all, through the real broker: consumed = applied + dead + duplicates + late.

Each file gets a partition of its own. ``pytest -s`` prints the table of docs/measured.md."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.kv_memory import kv_memory_for

DATA = Path(__file__).parents[4] / "shared" / "data"

Produced = Iterator[tuple[str, Any]]


def lines(name: str) -> list[str]:
    return gzip.decompress((DATA / name).read_bytes()).decode().splitlines()


def rows(name: str, columns: str, delimiter: str = ",") -> list[dict[str, str]]:
    """``columns`` names them; where it is empty the file's first line does."""
    named = columns.split() or None
    return list(csv.DictReader(io.StringIO("\n".join(lines(name))), named, delimiter=delimiter))


def ohlcv(row: dict[str, str], time: Any) -> dict[str, Any]:
    names = ("Open", "High", "Low", "Close", "Volume")
    return {"time": time, **{name.lower(): row[name] or None for name in names}}


def klines(name: str) -> Produced:
    for line in lines(name):
        yield "BTCUSDT", dict(zip("tohlcv", json.loads(line)[:6], strict=True))


def bitstamp_bars(name: str) -> Produced:
    for bar in json.loads("\n".join(lines(name)))["data"]["ohlc"]:
        yield "BTC/USD", bar


def bitstamp_trades(name: str) -> Produced:
    for row in rows(name, "time price amount"):
        yield "BTC/USD", row


def daily(name: str) -> Produced:
    for row in rows(name, ""):
        yield row["Ticker"], ohlcv(row, row["Date"] + "T00:00:00Z")


def illiquid(name: str) -> Produced:
    for row in rows(name, ""):
        yield "SSNLF", ohlcv(row, row["Datetime"])


def quotes(name: str) -> Produced:
    midnight = int(datetime(2014, 5, 1, tzinfo=UTC).timestamp() * 1000)
    for row in rows(name, "ms bid ask"):
        yield "EUR/USD", {"time": midnight + int(row["ms"]), "price": (float(row["bid"]) + float(row["ask"])) / 2}


def minutes(name: str) -> Produced:
    for row in rows(name, "time Open High Low Close Volume", ";"):
        at = datetime.strptime(row["time"], "%Y%m%d %H%M%S").replace(tzinfo=UTC)
        yield "SPY", ohlcv(row, at.isoformat())


def rest(name: str) -> Produced:
    for line in (DATA / name).read_text().splitlines():
        answer = json.loads(line)
        bars = {answer["ticker"]: answer["results"]} if "ticker" in answer else answer["bars"]
        yield from bars.items()
        if not bars:
            yield "EMPTY", []


def messages(name: str) -> list[dict[str, Any]]:
    return [json.loads(line.partition(": ")[2]) for line in lines(name)]


def coinbase(name: str) -> Produced:
    for message in messages(name):
        size = message["last_size" if message["type"] == "ticker" else "size"]
        wanted = {field: message[field] for field in ("price", "time", "trade_id")}
        yield message["product_id"], {**wanted, "size": size}


def open_klines(name: str) -> Produced:
    for message in (message["data"] for message in messages(name) if message["data"]["e"] == "kline"):
        yield message["s"], {field: message["k"][field] for field in "tohlcv"}


def binance_trades(name: str) -> Produced:
    for message in (message["data"] for message in messages(name) if message["data"]["e"] == "aggTrade"):
        yield (
            message["s"],
            {"time": message["T"], "price": message["p"], "qty": message["q"], "trade_id": message["a"]},
        )


@dataclass(frozen=True)
class Sample:
    """A file, what reads it, and what has to become of its records."""

    name: str
    read: Callable[[str], Produced]
    dead: int = 0
    duplicates: int = 0
    late: int = 0


BARS = (
    Sample("binance_klines_btcusdt_1h_2020-05.jsonl.gz", klines),
    Sample("bitstamp_ohlc_btcusd_1m_2019-12-31.json.gz", bitstamp_bars),
    Sample("daily_us_equities_2000-2013.csv.gz", daily),
    Sample("ssnlf_daily_illiquid.csv.gz", illiquid, dead=242),  # rows without a price
    Sample("spy_1m_2011q1_ninjatrader.csv.gz", minutes),
    Sample("rest_polygon_alpaca_bars.jsonl", rest, dead=3, late=2),  # answers without a bar; older after newer
    Sample("ws_binance_futures_kline_aggtrade.log.gz", open_klines),
)
TRADES = (
    Sample("bitstamp_trades_btcusd_2011-09_2012-05.csv.gz", bitstamp_trades),
    Sample("oanda_ticks_eurusd_2014-05-01.csv.gz", quotes),
    Sample("ws_coinbase_ticker_match_2021-04-17.log.gz", coinbase, duplicates=107),  # all come twice
    Sample("ws_binance_futures_kline_aggtrade.log.gz", binance_trades),
)


def test_every_record_of_the_sample_files_is_accounted_for(make_pipeline: Callable[..., Any]) -> None:
    if not DATA.is_dir():
        pytest.skip("the sample files are not here: ../shared/data")
    pipeline = make_pipeline(
        {"kv_memory": kv_memory_for(64)}, partitions=max(len(BARS), len(TRADES)), poll_records=2_000
    )
    pipeline.start_engine()
    pipeline.start_consumer()
    ends = {}
    for topic, samples in zip(pipeline.kafka.source_topics, (BARS, TRADES), strict=True):
        for partition, sample in enumerate(samples):
            # One source a session: each file's symbols are its own.
            produced = [(f"{topic[-6:]}{partition}/{key}", value) for key, value in sample.read(sample.name)]
            ends[topic, partition, sample] = pipeline.put(topic, produced, partition)
    found = {}
    print(f"\n| {'file':48} | consumed | applied | dead-lettered | duplicates | late |")
    for (topic, partition, sample), end in ends.items():
        pipeline.until_committed(topic, end, partition)
        counts = pipeline.counts(topic, end, partition)
        numbers = (counts.consumed, counts.applied, counts.dead_lettered, counts.duplicates, counts.late)
        print(f"| {sample.name:48} |" + " |".join(f"{number:>8}" for number in numbers) + " |")
        assert counts.consumed == end
        assert counts.consumed == counts.applied + counts.dead_lettered + counts.duplicates + counts.late
        found[sample] = numbers[2:]
    assert found == {sample: astuple(sample)[2:] for sample in found}
    for topic, samples in zip(pipeline.kafka.source_topics, (BARS, TRADES), strict=True):
        assert len(pipeline.dead_letters(topic)) == sum(sample.dead + sample.late for sample in samples)
