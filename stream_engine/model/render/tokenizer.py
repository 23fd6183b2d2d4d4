"""The embedded model's tokenizer: byte-level BPE for any text, and whole tokens for control, bars and answers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from stream_engine.model.frame import MAX_LEVEL, MAX_MOVE, VOLUMES
from stream_engine.model.profile import TOKENIZER_FILE, Profile

PAD, END = "<|pad|>", "<|end|>"
SYSTEM, USER, ASSISTANT, TOOL = "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"
CONTROL = (PAD, SYSTEM, USER, ASSISTANT, TOOL, END)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The same framing as `TokenBuilder`'s, for tools that open the folder with transformers."""


def level_token(level: int) -> str:
    """Text form of the token of a close at this level, e.g. `<p+012>`."""
    return f"<p{level:+04d}>"


def move_token(move: int) -> str:
    """Text form of the token of a move of this bucket, e.g. `<m-07>`."""
    return f"<m{move:+03d}>"


def volume_token(volume: int) -> str:
    """Text form of the token of a volume of this bucket, e.g. `<v065>`."""
    return f"<v{volume:03d}>"


def answer_token(name: str, word: str) -> str:
    """Text form of the vocabulary entry that stands for a word of class `name`."""
    return f"<|{name}:{word}|>"


LEVEL_TOKENS = tuple(level_token(level) for level in range(-MAX_LEVEL, MAX_LEVEL + 1))
MOVE_TOKENS = tuple(move_token(move) for move in range(-MAX_MOVE, MAX_MOVE + 1))
FIRST_MOVE = "<m>"
"""In place of a move's token at the first bar of a region."""
VOLUME_TOKENS = tuple(volume_token(volume) for volume in range(VOLUMES))
BAR_TOKENS = (*LEVEL_TOKENS, *MOVE_TOKENS, FIRST_MOVE, *VOLUME_TOKENS)


def train_tokenizer(profile: Profile, corpus: Iterable[str], merged_vocab: int = 800) -> Tokenizer:
    """Train the byte-level BPE part on `corpus` (at most `merged_vocab` entries) and add the whole tokens.

    Digits stay single, so that a price is never an unseen merge; deterministic for a given corpus.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=merged_vocab,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(corpus, trainer)
    answers = tuple(
        answer_token(answer_class.name, word) for answer_class in profile.classes for word in answer_class.words
    )
    whole = [*CONTROL, *answers, *BAR_TOKENS]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in whole])
    return tokenizer


def load_tokenizer(directory: Path) -> Tokenizer:
    """Open a folder's tokenizer so that text can never make a control, bar or answer token.

    With `encode_special_tokens` a literal `<|end|>` in a question is encoded as the characters it is made of.
    """
    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    tokenizer.encode_special_tokens = True
    return tokenizer
