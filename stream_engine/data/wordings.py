"""Words for training: symbols, variations of the listed questions, and the tokenizer's corpus."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stream_engine.model.profile import Profile, normalise_question, read_questions

HELD_OUT = Path(__file__).parent / "held_out.txt"
"""Wordings that no training asks: what the model and its router are judged on."""

_SYMBOL_TEXT = """
AAPL MSFT GOOG IBM FB AMZN TSLA NVDA META NFLX INTC AMD ORCL CSCO QCOM ADBE CRM TXN SAP ASML TSM SONY
BABA JPM BAC GS MS WFC C V MA AXP BLK BRK.B BRK.A KO PEP MCD SBUX NKE DIS WMT TGT COST HD LOW PG JNJ PFE
MRK ABBV LLY UNH XOM CVX BP SHEL TTE CAT DE BA GE F GM T VZ SPY QQQ DIA IWM VTI GLD SLV USO TLT VIX ^GSPC
^IXIC ^DJI ^VIX ^FTSE BTC ETH SOL XRP DOGE ADA BTCUSDT ETHUSDT SOLUSDT BTC/USD ETH/USD BTC-USD ETH-USD
BTC/EUR SOL/USD XRP/USD LTC/USD SKL-USD SKL-BTC DASH-BTC NMR-EUR BAND-GBP SUSHIUSDT CTKUSDT EURUSD GBPUSD
USDJPY EUR/USD GBP/USD USD/JPY EURUSD=X GBPUSD=X AUD/USD USD/CHF CL=F GC=F ES=F NQ=F CLM20 ZN=F SSNLF
"""
SYMBOLS = tuple(_SYMBOL_TEXT.split())

_NOUNS = ("the price", "it", "the market", "the stock", "this", "the instrument", "the series", "this one")
_LEADS = (
    "so, ", "now: ", "please: ", "can you tell me: ", "can you tell me ", "tell me: ", "tell me ", "hey, ",
    "ok, ", "please tell me ", "I want to know ", "quick: ", "and ", "could you say ", "do you know ",
)  # fmt: skip
_TAILS = (
    " now", " right now", " today", " at the moment", " lately", " recently", " currently", " please",
    " just now", " over the last bars", " in the last 32 bars", " over the window", " here",
    " these days", " then",
)  # fmt: skip

_GENERAL = """
answer about the last 32 bars. the a an of to in on at is are was were be been it its this that these
those what which where when why how who whom whose there here now then today yesterday tomorrow price
prices market markets stock stocks share shares bond bonds rate rates currency currencies pair crypto oil
gold index fund future futures option trade trades trading traded volume volumes bar bars candle candles
tick ticks open high low close last first next range week weeks day days hour hours minute minutes month
months year years session sessions window windows recent recently current currently change changed
changes move moved moves moving rise rises rising risen fall falls falling fallen drop drops dropped gain
gains gained lose loses lost losing loss losses jump jumps up down flat sideways upward downward higher
lower strong stronger weak weaker strength weakness fast faster slow slower speed speeding slowing trend
trends trending direction heading going doing position momentum volatility volatile calm quiet support
resistance breakout average mean bullish bearish bull bear buy sell hold long short please tell show give
me us you your we they can could would should will do does did has have had not no yes or and but if than
more turnover activity busy busier quiet quieter swing swings size bigger smaller larger wider narrower wild
wilder calmer choppy choppier volatile steady unchanged same latest newest past before earlier top bottom
upper middle third part near steam pace force growing shrinking increasing decreasing increase decrease
less most least very much many any some all none each over under above below near between within
since until for from by with about into one two three four five ten hundred
"""


_SMALL = frozenset(["the", "is", "it", "a", "of", "in", "its", "are", "was", "did", "has", "this", "to", "on"])
_ALIKE = (
    ("rising", "increasing", "going up", "growing", "climbing"),
    ("falling", "decreasing", "going down", "dropping", "declining"),
    ("bigger", "larger", "wider"),
    ("smaller", "narrower", "tighter"),
    ("speeding up", "accelerating", "picking up speed"),
    ("slowing down", "fading", "losing speed"),
    ("near", "close to"),
    ("last", "latest", "most recent"),
    ("last bar", "last candle", "final bar", "newest bar"),
    ("the top", "the high", "the upper end"),
    ("the bottom", "the low", "the lower end"),
    ("steady", "stable", "unchanged", "the same"),
    ("what is", "what's", "how is"),
    ("show me", "tell me", "give me", "let me know"),
)
"""Phrases that may stand for one another in a wording without changing its class."""
_RESERVED = frozenset(
    normalise_question(held) for wordings in read_questions(HELD_OUT).values() for held in wordings
)


def vary(rng: np.random.Generator, question: str, symbol: str) -> str:
    """A way a person may type a listed question, never one of the wordings held out.

    Case, end mark, the symbol's name, small words around it or left out, a phrase for one like it.
    """
    while True:
        varied = _varied(rng, question, symbol)
        if normalise_question(varied) not in _RESERVED:
            return varied


def _reworded(rng: np.random.Generator, text: str) -> str:
    """Another phrase for one that has others like it, where the text holds one."""
    padded = f" {text[0].lower()}{text[1:]} "
    found = [(phrase, group) for group in _ALIKE for phrase in group if f" {phrase} " in padded]
    if not found:
        return text
    phrase, group = found[rng.integers(len(found))]
    changed = padded.replace(f" {phrase} ", f" {group[rng.integers(len(group))]} ", 1).strip()
    return changed[0].upper() + changed[1:]


def _varied(rng: np.random.Generator, question: str, symbol: str) -> str:
    text = question
    mark = text[-1] if text[-1] in "?." else ""
    text = text.rstrip("?.")
    if rng.random() < 0.25:
        text = _reworded(rng, text)
    if rng.random() < 0.12:
        kept = [word for word in text.split() if word.lower() not in _SMALL or rng.random() < 0.4]
        text = " ".join(kept) or text
    if rng.random() < 0.2:
        nouns = [noun for noun in _NOUNS if f" {noun} " in f" {text} "]
        if nouns:
            text = f" {text} ".replace(f" {nouns[0]} ", f" {_NOUNS[rng.integers(len(_NOUNS))]} ").strip()
    form = rng.random()
    if form < 0.08:
        text = f"{text} of {symbol}"
    elif form < 0.14:
        text = f"{text} for {symbol}"
    elif form < 0.19:
        text = f"{symbol}: {text}"
    elif form < 0.25 and f" {_NOUNS[1]} " in text:
        text = text.replace(" it ", f" {symbol} ", 1)
    elif form < 0.37:
        text = text + _TAILS[rng.integers(len(_TAILS))]
    elif form < 0.49:
        text = _LEADS[rng.integers(len(_LEADS))] + text[0].lower() + text[1:]
    case = rng.random()
    if case < 0.25:
        text = text.lower()
    elif case < 0.28:
        text = text.upper()
    if rng.random() < 0.3:
        mark = ("", "?", "??", ".", "!", " ?")[rng.integers(6)]
    return text + mark


def draw_symbol(rng: np.random.Generator) -> str:
    """A known symbol, or letters that look like one."""
    if rng.random() < 0.5:
        return SYMBOLS[rng.integers(len(SYMBOLS))]
    letters = string.ascii_uppercase + (string.digits if rng.random() < 0.15 else "")
    body = "".join(letters[at] for at in rng.integers(0, len(letters), rng.integers(1, 6)))
    return body + ("", "", "", "USDT", "/USD", "-USD", "=X", ".L", "=F")[rng.integers(9)]


def corpus(profile: Profile, rng: np.random.Generator) -> Iterator[str]:
    """Text to train the byte-level merges on: questions and their variations, symbols, anchors, common words."""
    for listed in profile.questions.values():
        for question in listed:
            yield from (question, question.lower(), question.upper())
            for _ in range(12):
                yield vary(rng, question, draw_symbol(rng))
    for symbol in SYMBOLS:
        yield from [f"{symbol} 1d 172.5\n", f"{symbol} 1m 0.5\n", f"{symbol} 1h 1e-05\n", f" of {symbol}", symbol]
    for word in _GENERAL.split():
        yield from [f" {word}", f" {word}", word, word.capitalize()]
    yield from [profile.system] * 20
