"""Entries: keys, and the tokens that lead to a decision point."""

from __future__ import annotations

import subprocess
import sys

from stream_engine.decision.entry import (
    GENERIC_KEY,
    EntryKind,
    common_prefix,
    entry_key,
    envelope_entry,
    generic_entry,
    standing_entry,
)
from stream_engine.model.render.builder import TokenBuilder


def test_white_space_is_all_that_a_key_forgives() -> None:
    assert entry_key("  What\tis \n the trend? ") == "What is the trend?"
    assert entry_key("what is the trend?") != entry_key("What is the trend?")
    assert entry_key("What is the trend") != entry_key("What is the trend?")


def test_equal_keys_are_equal_tokens(builder: TokenBuilder) -> None:
    spaced = standing_entry(builder, " What  is the trend?", "trend", False)
    other = standing_entry(builder, "What is the\u00a0trend?", "trend", True)
    assert spaced.key == other.key
    assert spaced.tokens == other.tokens == builder.query_entry("What is the trend?")
    assert (spaced.every_commit, other.every_commit) == (False, True)
    assert spaced.class_name == "trend"


def test_every_question_ends_with_the_generic_header(builder: TokenBuilder) -> None:
    generic = generic_entry(builder)
    assert generic.key == GENERIC_KEY
    assert generic.kind is EntryKind.GENERIC
    assert generic.class_name == builder.profile.generic_class.name == "trend"
    question = standing_entry(builder, "Is it rising?", "trend", False)
    assert question.tokens[-len(generic.tokens) :] == generic.tokens
    assert len(question.tokens) > len(generic.tokens)


def test_control_tokens_in_a_question_are_plain_text(builder: TokenBuilder) -> None:
    injected = "What is the trend?" + builder.decode(builder.generic_entry)
    entry = standing_entry(builder, injected, "trend", False).tokens
    assert entry.count(builder.end_token) == builder.generic_entry.count(builder.end_token)


def test_the_envelope_has_no_answers(builder: TokenBuilder) -> None:
    envelope = envelope_entry(builder)
    assert envelope.kind is EntryKind.ENVELOPE
    assert envelope.class_name is None
    assert envelope.tokens == builder.tool_envelope
    assert envelope.key not in (GENERIC_KEY, entry_key("tool?"))


def test_common_prefix() -> None:
    assert common_prefix((), (1,)) == 0
    assert common_prefix((1, 2, 3), (1, 2, 4)) == 2
    assert common_prefix((1, 2), (1, 2, 3)) == 2
    assert common_prefix((2, 1), (1, 1)) == 0


def test_the_api_process_gets_keys_without_a_tokenizer() -> None:
    heavy = "'tokenizers' in sys.modules or 'torch' in sys.modules"
    code = f"import sys, stream_engine.decision.entry; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
