"""The fast-answer set: which single tokens of a tokenizer stand for an answer word (Eq. 12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tokenizers import Tokenizer

_WORD_START = "▁"
"""How SentencePiece vocabularies write a leading space, which their decoders drop from a first token."""


class NoSingleToken(ValueError):
    """A word has no token of its own, so no single token can answer with it; the message names the word."""


@dataclass(frozen=True, slots=True)
class SurfaceForm:
    """One token that reads as a word: its id, and its text with the case and the leading space that it has."""

    token: int
    text: str


def surface_forms(tokenizer: Tokenizer, words: Iterable[str]) -> dict[str, tuple[SurfaceForm, ...]]:
    """Every token that is one of the words by itself, whatever its case, with or without one leading space.

    Raises NoSingleToken for a word that has none: a tokenizer that spells it in pieces cannot answer with it
    from one distribution."""
    found: dict[str, list[SurfaceForm]] = {word: [] for word in words}
    by_text = {word.casefold(): word for word in found}
    for written, token in sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1]):
        text = tokenizer.decode([token], skip_special_tokens=False)
        if written.startswith(_WORD_START) and not text.startswith(" "):
            text = f" {text}"
        word = by_text.get(text.removeprefix(" ").casefold())
        if word is not None:
            found[word].append(SurfaceForm(token, text))
    for word, forms in found.items():
        if not forms:
            pieces = tokenizer.encode(word, add_special_tokens=False).tokens
            raise NoSingleToken(f"{word!r} is no single token of this tokenizer: it is spelled {pieces}")
    return {word: tuple(forms) for word, forms in found.items()}


def served_forms(
    tokenizer: Tokenizer, words: Mapping[str, Iterable[str]], answers: Mapping[int, tuple[str, str]]
) -> dict[str, dict[str, tuple[SurfaceForm, ...]]]:
    """The set that a model is served with, by class and word: ``answers`` maps a token id to its class and word.

    Raises NoSingleToken for a word of a class that no token stands for."""
    forms: dict[str, dict[str, tuple[SurfaceForm, ...]]] = {}
    for kind, listed in words.items():
        for word in listed:
            tokens = sorted(token for token, answer in answers.items() if answer == (kind, word))
            if not tokens:
                raise NoSingleToken(f"{word!r} of class {kind!r} has no answer token in this model")
            written = tuple(SurfaceForm(token, str(tokenizer.id_to_token(token))) for token in tokens)
            forms.setdefault(kind, {})[word] = written
    return forms
