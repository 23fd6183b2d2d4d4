"""Variations of questions: seeded, many, and never empty."""

from __future__ import annotations

import numpy as np

from stream_engine.data.wordings import HELD_OUT, corpus, draw_symbol, vary
from stream_engine.model.profile import EMBEDDED, Profile, normalise_question, read_questions

HELD = read_questions(HELD_OUT)


def test_variations_are_many_and_keep_words() -> None:
    rng = np.random.default_rng(0)
    seen = {vary(rng, "What is the trend?", "AAPL") for _ in range(400)}
    assert len(seen) > 60
    assert all("trend" in text.lower() for text in seen)
    assert any("AAPL" in text for text in seen)
    assert any(text.endswith("?") for text in seen)
    assert any(text[-1].isalpha() for text in seen)


def test_variations_leave_small_words_out_and_reword() -> None:
    rng = np.random.default_rng(1)
    seen = {vary(rng, "Was the last bar up or down?", "X").lower().rstrip("?!. ") for _ in range(3000)}
    assert "last bar up or down" in seen
    assert "was the last candle up or down" in seen


def test_symbols_are_drawn_from_lists_and_letters() -> None:
    rng = np.random.default_rng(0)
    assert len({draw_symbol(rng) for _ in range(500)}) > 200


def test_held_out_wordings_are_not_listed() -> None:
    listed = {normalise_question(text) for texts in Profile.load(EMBEDDED).questions.values() for text in texts}
    held = [normalise_question(text) for texts in HELD.values() for text in texts]
    assert all(len(HELD[answer_class.name]) >= 15 for answer_class in Profile.load(EMBEDDED).classes)
    assert len(set(held)) == len(held)
    assert not listed & set(held)


def test_held_out_wordings_are_never_drawn() -> None:
    rng = np.random.default_rng(0)
    held = {normalise_question(text) for texts in HELD.values() for text in texts}
    near = {vary(rng, "Is volatility going up?", "X") for _ in range(2000)}
    assert "Is the volatility going up?" in HELD["volatility"]
    assert not held & {normalise_question(text) for text in near}
    assert not held & {normalise_question(text) for text in corpus(Profile.load(EMBEDDED), rng)}
