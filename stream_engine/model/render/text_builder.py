"""Any instruct model's rendering: its own chat template and tokenizer, closes as signed numbers of two digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateError
from numpy.typing import NDArray
from tokenizers import Tokenizer

from stream_engine.model.frame import BarArrays, RegionFrame
from stream_engine.model.profile import Profile
from stream_engine.model.render.builder import bar_size
from stream_engine.model.render.fast_set import NoSingleToken, surface_forms

LEVELS_A_UNIT = 2
"""A level is half of the region's unit."""

MAX_LEVEL = 99
"""Largest level either side of the reference. A sign and two digits: what a trend hangs on, the side of the
reference and how far, is in tokens of their own, and every number has as many of them."""

_DATA, _ANSWER, _NEXT = "@@data@@", "@@answer@@", "@@next@@"


class TextBuilder:
    """Renders a session as one chat: system text, an open user turn with one signed number a bar, the entries.

    The surface of `rendering.Builder`. A bar is its close alone; open, high, low and volume are not shown.
    """

    max_anchor_tokens = 64

    def __init__(self, profile: Profile, tokenizer: Tokenizer, template: ChatPieces) -> None:
        """Take over `tokenizer` (its `encode_special_tokens` is set).

        Raises NoSingleToken where an answer word is no single token behind the stem, ValueError where two classes
        share a word or a number cannot be written.
        """
        self.profile = profile
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = False
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.prefix: tuple[int, ...] = self._control(template.before_data)
        header = self._control(template.after_data)
        self.tool_envelope: tuple[int, ...] = self._control(template.after_answer)
        self.end_token: int = self.tool_envelope[0]
        self._added = frozenset(tokenizer.get_added_tokens_decoder())
        # From here on text is only text: a literal `<|im_end|>` in a question is the characters it is made of.
        tokenizer.encode_special_tokens = True
        self._stem = self._text(profile.stem) if profile.stem else ()
        self.generic_entry: tuple[int, ...] = header + self._stem
        self.answers: dict[int, tuple[str, str]] = {}
        self.answer_ids: dict[tuple[str, str], int] = {}
        for answer_class in profile.classes:
            self._add_words(answer_class.name, answer_class.words)
        self._levels = self._level_table()
        self.tokens_per_bar: int = self._levels.shape[1]

    @classmethod
    def load(cls, profile: Profile, directory: Path) -> TextBuilder:
        """The builder of a model folder. Raises ValueError where its tokenizer has no chat template."""
        from transformers import AutoTokenizer

        loaded = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
        if getattr(loaded, "backend_tokenizer", None) is None:
            raise ValueError(f"{directory}: the model has no tokenizer.json; save its tokenizer as a fast one")
        return cls(profile, loaded.backend_tokenizer, chat_pieces(loaded, profile.system))

    def _add_words(self, name: str, words: Sequence[str]) -> None:
        for word, forms in surface_forms(self._tokenizer, words).items():
            # Behind a stem an answer begins with a space; where there is none it is the bare word.
            wanted = f" {word}" if self.profile.stem else word
            expected = [form.token for form in forms if form.text == wanted]
            if not expected:
                pieces = self._tokenizer.encode(wanted, add_special_tokens=False).tokens
                raise NoSingleToken(f"{wanted!r} is no single token of this tokenizer: it is spelled {pieces}")
            self.answer_ids[(name, word)] = expected[0]
            for form in forms:
                if form.token in self.answers:
                    raise ValueError(f"{word!r} is a word of classes {self.answers[form.token][0]!r} and {name!r}")
                self.answers[form.token] = (name, word)

    def _level_table(self) -> NDArray[np.int32]:
        """Tokens of each level, from the lowest up, int32 [2 MAX_LEVEL + 1, n]: as one piece, or sign and digits
        one by one where that is the only way to have the same number of tokens for each."""
        levels = range(-MAX_LEVEL, MAX_LEVEL + 1)
        parts = [(" -" if level < 0 else " +", *f"{abs(level):02d}") for level in levels]
        whole = [
            encoding.ids for encoding in self._tokenizer.encode_batch(["".join(text) for text in parts], False)
        ]
        if len({len(ids) for ids in whole}) > 1:
            single = {part: self._text(part) for part in {part for text in parts for part in text}}
            whole = [[token for part in text for token in single[part]] for text in parts]
        if len({len(ids) for ids in whole}) > 1:
            raise ValueError("this tokenizer writes digits as different numbers of tokens")
        return np.array(whole, dtype=np.int32)

    def _control(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _text(self, text: str) -> tuple[int, ...]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not self._added.isdisjoint(ids):
            # An added token that is not marked as special: one character cannot be one.
            ids = [token for part in self._tokenizer.encode_batch(list(text), add_special_tokens=False)
                   for token in part.ids]  # fmt: skip
        return tuple(ids)

    def anchor(self, frame: RegionFrame) -> tuple[int, ...]:
        """What opens a region: symbol, bar size, reference, price of a level; the symbol is cut to fit."""
        scale = f"from {frame.reference:.6g} in steps of {frame.unit / LEVELS_A_UNIT:.3g}:"
        rest = self._text(f" {bar_size(frame.bar_seconds)} closes {scale}")
        symbol = self._text(" ".join(frame.symbol.split()))
        return symbol[: self.max_anchor_tokens - len(rest)] + rest

    def bars(self, frame: RegionFrame, bars: BarArrays, before: float | None = None) -> NDArray[np.int32]:
        """Tokens of bars, int32 [n, tokens_per_bar]: the close in half units from the reference, with its sign.

        `before`, the close before the first of them, is not shown.
        """
        with np.errstate(over="ignore"):
            levels = np.rint((bars.close - frame.reference) / (frame.unit / LEVELS_A_UNIT))
        return self._levels[np.clip(levels, -MAX_LEVEL, MAX_LEVEL).astype(np.int64) + MAX_LEVEL]

    def query_entry(self, question: str) -> tuple[int, ...]:
        """Question on a new line, close of the user turn, assistant header, stem; white space is collapsed."""
        return self._text("\n" + " ".join(question.split())) + self.generic_entry

    def tool_payload(self, payload: str) -> tuple[int, ...]:
        """What a tool answered; it follows the tool envelope, and the generic entry opens the next turn."""
        return self._text(payload)

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text of tokens, control tokens included."""
        return str(self._tokenizer.decode([int(token) for token in ids], skip_special_tokens=False))


@dataclass(frozen=True, slots=True)
class ChatPieces:
    """A chat template cut where the session's own text goes.

    before_data: system text and opening of the user turn. after_data: close of the user turn and assistant
    header. after_answer: close of the assistant's turn and opening of the user's next one.
    """

    before_data: str
    after_data: str
    after_answer: str


def chat_pieces(tokenizer: Any, system: str) -> ChatPieces:
    """Cut the template of a `transformers` tokenizer; without a system turn its text goes into the user's.

    Raises ValueError where there is no template, or it does not carry a message through as it is.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError("the tokenizer has no chat template: only a model that was made for chat can be asked")
    user = {"role": "user", "content": _DATA}
    opening = [{"role": "system", "content": system}, user]
    try:
        text = _render(tokenizer, opening, True)
    except TemplateError:
        opening = [{"role": "user", "content": f"{system}\n\n{_DATA}"}]
        text = _render(tokenizer, opening, True)
    later = _render(
        tokenizer,
        [*opening, {"role": "assistant", "content": _ANSWER}, {"role": "user", "content": _NEXT}],
        False,
    )
    before, _, after = text.partition(_DATA)
    _, _, rest = later.partition(_ANSWER)
    between, found, _ = rest.partition(_NEXT)
    if not (before and after and between and found):
        raise ValueError("the chat template does not carry messages through as they are")
    return ChatPieces(before, after, between)


def _render(tokenizer: Any, messages: list[dict[str, str]], generate: bool) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate))
