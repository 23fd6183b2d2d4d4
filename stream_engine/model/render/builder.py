"""Token sequences of separately tokenised pieces: the one builder of training, calibration and serving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from stream_engine.model.frame import MAX_LEVEL, MAX_MOVE, BarArrays, RegionFrame
from stream_engine.model.profile import Profile
from stream_engine.model.render.tokenizer import (
    ASSISTANT,
    END,
    FIRST_MOVE,
    LEVEL_TOKENS,
    MOVE_TOKENS,
    SYSTEM,
    TOOL,
    USER,
    VOLUME_TOKENS,
    answer_token,
    load_tokenizer,
)

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


class TokenBuilder:
    """Renders a session: frozen prefix, anchor line, bars, and the entries at its live end.

    Pieces are tokenised apart, so a piece's tokens never depend on its neighbours and a sequence can be cut
    and joined at any piece.
    """

    tokens_per_bar = 3
    max_anchor_tokens = 24

    def __init__(self, profile: Profile, tokenizer: Tokenizer) -> None:
        self.profile = profile
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.end_token = self._whole(END)
        close_turn = (self.end_token, self._whole(ASSISTANT))
        self.prefix: tuple[int, ...] = (
            self._whole(SYSTEM),
            *self._text(profile.system),
            self.end_token,
            self._whole(USER),
        )
        self.generic_entry: tuple[int, ...] = close_turn
        self.tool_envelope: tuple[int, ...] = (self.end_token, self._whole(TOOL))
        self.answers: dict[int, tuple[str, str]] = {
            self._whole(answer_token(answer_class.name, word)): (answer_class.name, word)
            for answer_class in profile.classes
            for word in answer_class.words
        }
        self._level_ids = np.array([self._whole(text) for text in LEVEL_TOKENS], dtype=np.int32)
        # In the order of the buckets: -MAX_MOVE .. MAX_MOVE, then NO_MOVE.
        self._move_ids = np.array([self._whole(text) for text in (*MOVE_TOKENS, FIRST_MOVE)], dtype=np.int32)
        self._volume_ids = np.array([self._whole(text) for text in VOLUME_TOKENS], dtype=np.int32)

    @classmethod
    def load(cls, directory: Path) -> TokenBuilder:
        """The builder of a model folder: its profile and its tokenizer."""
        return cls(Profile.load(directory), load_tokenizer(directory))

    def _whole(self, text: str) -> int:
        found = self._tokenizer.token_to_id(text)
        if found is None:
            raise ValueError(f"the tokenizer has no token {text!r}; it does not belong to this profile")
        return int(found)

    def _text(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def anchor(self, frame: RegionFrame) -> tuple[int, ...]:
        """Line that opens a region: symbol, bar size, reference price; the symbol is cut to fit the bound."""
        rest = self._text(f" {bar_size(frame.bar_seconds)} {frame.reference:.6g}\n")
        symbol = self._text(" ".join(frame.symbol.split()))
        return symbol[: self.max_anchor_tokens - len(rest)] + rest

    def bars(self, frame: RegionFrame, bars: BarArrays, before: float | None = None) -> NDArray[np.int32]:
        """Tokens of bars, int32 [n, tokens_per_bar]: level of the close, its move, volume.

        `before` is the close before the first of them; None where that one is the first of its region.
        """
        levels = self._level_ids[frame.levels(bars.close) + MAX_LEVEL]
        moves = self._move_ids[frame.moves(bars.close, before) + MAX_MOVE]
        return np.stack([levels, moves, self._volume_ids[frame.volumes(bars.volume)]], axis=-1)

    def query_entry(self, question: str) -> tuple[int, ...]:
        """Question, close of the user turn, assistant header; white space is collapsed."""
        return self._text(" ".join(question.split())) + self.generic_entry

    def tool_payload(self, payload: str) -> tuple[int, ...]:
        """What a tool answered; it follows the tool envelope, and the generic entry opens the next turn."""
        return self._text(payload)

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text of tokens; an answer token reads as its word."""
        pieces: list[str] = []
        run: list[int] = []
        for token in ids:
            if token in self.answers:
                pieces += [self._tokenizer.decode(run, skip_special_tokens=False), self.answers[token][1]]
                run = []
            else:
                run.append(int(token))
        return "".join([*pieces, self._tokenizer.decode(run, skip_special_tokens=False)])

    @property
    def level_ids(self) -> NDArray[np.int32]:
        """Token ids of the levels, lowest first: their embeddings start as neighbours."""
        return self._level_ids

    @property
    def move_ids(self) -> NDArray[np.int32]:
        """Token ids of the moves, largest move down first, without that of a first bar."""
        return self._move_ids[:-1]

    @property
    def volume_ids(self) -> NDArray[np.int32]:
        """Token ids of the volumes, none first."""
        return self._volume_ids


def bar_size(seconds: int | None) -> str:
    """A bar's length as people write it: `1d`, `4h`, `5m`, `10s`; `bar` where it is not known."""
    if seconds is None:
        return "bar"
    for length, letter in _UNITS:
        if seconds % length == 0:
            return f"{seconds // length}{letter}"
    return f"{seconds}s"
