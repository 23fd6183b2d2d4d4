"""What the engine needs of a model's renderer, and which renderer a profile asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_engine.model.frame import BarArrays, RegionFrame
from stream_engine.model.hub.files import ModelFiles
from stream_engine.model.profile import TEXT_RENDERING, Profile
from stream_engine.model.render.builder import TokenBuilder
from stream_engine.model.render.tokenizer import load_tokenizer


class Builder(Protocol):
    """Token sequences of one model, of separately tokenised pieces: prefix, anchor, bars, entries.

    A piece's tokens never depend on its neighbours, so a sequence can be cut and joined at any piece.
    """

    profile: Profile

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""
        ...

    @property
    def tokens_per_bar(self) -> int:
        """Every bar is this many tokens."""
        ...

    @property
    def max_anchor_tokens(self) -> int:
        """An anchor line is at most this many tokens."""
        ...

    @property
    def prefix(self) -> tuple[int, ...]:
        """Frozen prefix: the system text, and the opening of the user turn that the data stands in."""
        ...

    @property
    def generic_entry(self) -> tuple[int, ...]:
        """Close of the user turn, assistant header, answer stem."""
        ...

    @property
    def tool_envelope(self) -> tuple[int, ...]:
        """What frames a returning tool result."""
        ...

    @property
    def end_token(self) -> int:
        """Ends an answer."""
        ...

    @property
    def answers(self) -> Mapping[int, tuple[str, str]]:
        """The fast-answer set: token id to (class, word)."""
        ...

    def anchor(self, frame: RegionFrame) -> tuple[int, ...]:
        """Line that opens a region: symbol, bar size, reference price."""
        ...

    def bars(self, frame: RegionFrame, bars: BarArrays, before: float | None = None) -> NDArray[np.int32]:
        """Tokens of bars, int32 [n, tokens_per_bar]; `before` is the close before the first, None where it opens
        the region."""
        ...

    def query_entry(self, question: str) -> tuple[int, ...]:
        """Question, then the generic entry."""
        ...

    def tool_payload(self, payload: str) -> tuple[int, ...]:
        """What a tool answered; it follows the tool envelope."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text of tokens."""
        ...


def load_builder(files: ModelFiles) -> Builder:
    """The renderer of a model's profile and tokenizer.

    Raises ValueError where profile and tokenizer do not fit, NoSingleToken (a ValueError) for an answer word that
    is no single token of the tokenizer.
    """
    profile = files.read_profile()
    if profile.rendering == TEXT_RENDERING:
        from stream_engine.model.render.text_builder import TextBuilder  # brings transformers

        return TextBuilder.load(profile, files.directory)
    return TokenBuilder(profile, load_tokenizer(files.directory))
