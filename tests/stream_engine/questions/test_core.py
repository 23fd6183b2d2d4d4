"""What is left of a question without its manners and the session's own name."""

from __future__ import annotations

import pytest

from stream_engine.questions.core import core, polar, several


@pytest.mark.parametrize(
    ("question", "session", "words"),
    [
        ("What is the trend?", "AAPL", "what is the trend"),
        ("WHAT'S   THE\tTREND ?!", "AAPL", "what is the trend"),
        ("So, can you please tell me: what’s the trend right now, please??", "AAPL", "what is the trend"),
        ("Hey, AAPL: what is the trend?", "AAPL", "what is the trend"),
        ("What is the trend of AAPL?", "AAPL", "what is the trend"),
        ("aapl trend", "AAPL", "trend"),
        ("AAPL's trend?", "AAPL", "its trend"),
        ("Which way is $AAPL going at the moment?", "AAPL", "which way is it going"),
        ("Trend over the last 32 bars?", "AAPL", "trend"),
        ("Trend over the last 5 bars?", "AAPL", "trend over the last 5 bars"),
        ("trend for btcusd", "BTC/USD", "trend"),
        ("BTC-USD up or down?", "BTC/USD", "up or down"),
        ("BTC up or down?", "BTC/USD", None),
        ("Is BRK.B rising or falling?", "BRK.B", "is it rising or falling"),
        ("^GSPC: direction?", "^GSPC", "direction"),
        ("EURUSD=X trend", "EURUSD=X", "trend"),
        ("Which way is T going?", "T", "which way is it going"),
        ("Which way is it going?", "IT", "which way is it going"),
        ("Now?", "AAPL", "now"),
        ("  ", "AAPL", ""),
    ],
)
def test_the_core(question: str, session: str, words: str | None) -> None:
    expected = None if words is None else tuple(words.split())
    assert core(question, session, window_bars=32) == expected


@pytest.mark.parametrize("session", ["AAPL", "BTC/USD", "AA", "PL", "AAPL.X", ""])
def test_a_symbol_in_capitals_that_is_not_the_session_has_no_core(session: str) -> None:
    assert core("What is the trend of MSFT?", session) is None
    assert core("AAPL-USD: which way is it going?", session) is None


def test_a_longer_symbol_is_not_the_session() -> None:
    assert core("trend of BTCUSDT", "BTC/USD") is None
    assert core("trend of BTC-USD-PERP", "BTC-USD") is None
    assert core("trend of msft", "AAPL") == ("trend", "of", "msft")


def test_forms() -> None:
    assert polar(("is", "it", "rising"))
    assert not polar(("is", "it", "rising", "or", "falling"))
    assert not polar(("which", "way", "is", "it", "going"))
    assert not polar(())
    assert several(("what", "is", "the", "trend", ",", "is", "it", "fading"))
    assert not several(("is", "it", "up", "or", "down"))


@pytest.mark.parametrize("text", ["a" + " " * 4000 + "b", "so," * 1365 + "x", "," * 4096, "the " * 1000 + "trend"])
def test_a_long_text_is_looked_at_once(text: str) -> None:
    """A pattern that tries every split of a run of blanks would take minutes here."""
    words = core(text, "AAPL", 32)
    assert words is None or len(words) <= 2
