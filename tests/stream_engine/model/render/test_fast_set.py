"""The fast-answer set of a real, small byte-level BPE, of a word-start vocabulary, and of the shipped model."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from stream_engine.model.profile import EMBEDDED
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.model.render.fast_set import NoSingleToken, SurfaceForm, served_forms, surface_forms
from stream_engine.model.render.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    """Merges "up" in five surface forms; "accelerating" is too rare and stays in pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, min_frequency=2, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    corpus = ["up", "it is up", "Up", "is UP", "go down", "upon", "it ups"] * 50 + ["accelerating"]
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def test_every_single_token_form_is_listed_with_case_and_leading_space(bpe: Tokenizer) -> None:
    found = surface_forms(bpe, ["up", "down"])
    assert {form.text for form in found["up"]} == {"up", " up", "Up", "UP", " UP"}
    assert " down" in {form.text for form in found["down"]}
    for forms in found.values():
        for form in forms:
            assert bpe.encode(form.text).ids == [form.token], "the token is what the text is encoded as"


def test_a_longer_token_that_holds_the_word_is_no_form_of_it(bpe: Tokenizer) -> None:
    texts = {form.text for form in surface_forms(bpe, ["up"])["up"]}
    assert bpe.token_to_id("upon") is not None
    assert not texts & {"upon", " ups"}


def test_a_word_in_pieces_is_refused_by_name(bpe: Tokenizer) -> None:
    pieces = bpe.encode("accelerating").tokens
    assert len(pieces) > 1
    with pytest.raises(NoSingleToken, match="'accelerating' is no single token") as error:
        surface_forms(bpe, ["up", "accelerating"])
    assert repr(pieces) in str(error.value)


def test_word_start_marks_read_as_a_leading_space() -> None:
    vocab = {"<unk>": 0, "▁up": 1, "up": 2, "▁Up": 3, "▁": 4}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    assert surface_forms(tokenizer, ["up"])["up"] == (
        SurfaceForm(1, " up"),
        SurfaceForm(2, "up"),
        SurfaceForm(3, " Up"),
    )


def test_the_shipped_model_has_one_answer_token_a_word(builder: TokenBuilder) -> None:
    words = {answer_class.name: answer_class.words for answer_class in builder.profile.classes}
    forms = served_forms(load_tokenizer(EMBEDDED), words, builder.answers)
    assert {kind: tuple(found) for kind, found in forms.items()} == words
    tokens = [form.token for found in forms.values() for listed in found.values() for form in listed]
    assert sorted(tokens) == sorted(builder.answers)
    with pytest.raises(NoSingleToken, match="'sideways' of class 'trend'"):
        served_forms(load_tokenizer(EMBEDDED), {"trend": ("up", "sideways")}, builder.answers)
