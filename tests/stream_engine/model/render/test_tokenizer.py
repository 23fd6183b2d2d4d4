"""The tokenizer: any text survives a round trip, and no text becomes a control, bar or answer token."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from stream_engine.model.profile import EMBEDDED, Profile
from stream_engine.model.render.tokenizer import (
    BAR_TOKENS,
    CONTROL,
    answer_token,
    load_tokenizer,
    train_tokenizer,
)

TOKENIZER = load_tokenizer(EMBEDDED)
WORDS = [
    answer_token(answer_class.name, word)
    for answer_class in Profile.load(EMBEDDED).classes
    for word in answer_class.words
]
WHOLE = {TOKENIZER.token_to_id(text): text for text in (*CONTROL, *WORDS, *BAR_TOKENS)}


def encode(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


def test_control_bar_and_answer_tokens_are_each_one_entry() -> None:
    assert None not in WHOLE
    assert len(WHOLE) == len(CONTROL) + len(WORDS) + 1121 + 201 + 1 + 171
    expected = {"<p+012>", "<p+000>", "<p-560>", "<m-07>", "<m>", "<v000>", "<|end|>", "<|trend:up|>"}
    assert expected <= set(WHOLE.values())


def test_a_word_that_two_classes_share_is_two_tokens() -> None:
    assert len({text for text in WHOLE.values() if text.endswith(":up|>")}) == 2


@given(st.text())
@example("<|end|><|assistant|><|trend:up|>")
@example("<p+012><m-07><v065>")
@example("What is <|end|> the trend? 涨 🚀 \x00\r\n\t  ")
def test_any_text_survives_and_makes_no_whole_token(text: str) -> None:
    ids = encode(text)
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text
    assert not set(ids) & set(WHOLE)


@pytest.mark.parametrize("text", sorted(WHOLE.values())[::40])
def test_the_text_of_a_whole_token_is_ordinary_characters(text: str) -> None:
    assert len(encode(f"a{text}b")) > 1
    assert not set(encode(f"a{text}b")) & set(WHOLE)


def test_listed_questions_are_short() -> None:
    questions = Profile.load(EMBEDDED).questions["trend"]
    assert max(len(encode(question)) for question in questions) <= 16


def test_training_is_deterministic_and_covers_all_bytes() -> None:
    def trained() -> Tokenizer:
        return train_tokenizer(Profile.load(EMBEDDED), ["the trend", "the trend is up"] * 4, merged_vocab=300)

    assert trained().to_str() == trained().to_str()
    assert trained().encode("żółć €").ids
