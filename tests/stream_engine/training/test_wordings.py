"""Variations of questions: seeded, many, and never empty."""

from __future__ import annotations

import numpy as np

from stream_engine.model.profile import EMBEDDED, Profile, normalise_question, read_questions
from stream_engine.training.wordings import draw_symbol, vary

HELD_OUT = read_questions(EMBEDDED.parents[2] / "tests/stream_engine/model/held_out_questions.txt")


def test_variations_are_many_and_keep_words() -> None:
    rng = np.random.default_rng(0)
    seen = {vary(rng, "What is the trend?", "AAPL") for _ in range(400)}
    assert len(seen) > 60
    assert all("trend" in text.lower() for text in seen)
    assert any("AAPL" in text for text in seen)
    assert any(text.endswith("?") for text in seen)
    assert any(text[-1].isalpha() for text in seen)


def test_symbols_are_drawn_from_lists_and_letters() -> None:
    rng = np.random.default_rng(0)
    assert len({draw_symbol(rng) for _ in range(500)}) > 200


def test_held_out_wordings_are_not_listed() -> None:
    listed = {normalise_question(text) for texts in Profile.load(EMBEDDED).questions.values() for text in texts}
    held = [normalise_question(text) for texts in HELD_OUT.values() for text in texts]
    assert len(HELD_OUT["trend"]) >= 12
    assert not listed & set(held)
