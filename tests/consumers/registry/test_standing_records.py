"""The record formats of the standing-query and answers topics."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

import consumers
from consumers.registry.standing_records import StandingRecord, encode_standing, parse_standing
from consumers.wire.reasons import DeadLetter, RawRecord
from consumers.writers.answers import AnswerRecord
from stream_engine.messages import StandingApply, StandingPut

SCHEMAS = Path(consumers.__file__).parent / "schemas"


def raw(key: bytes | None, value: bytes | None, offset: int = 7) -> RawRecord:
    return RawRecord("standing", 0, offset, 0, key, value)


@pytest.mark.parametrize(("name", "kind"), [("answer", AnswerRecord), ("standing_query", StandingRecord)])
def test_the_schema_in_the_package_is_that_of_the_code(name: str, kind: type) -> None:
    assert json.loads((SCHEMAS / f"{name}.schema.json").read_text()) == msgspec.json.schema(kind)


def test_a_record_says_what_was_registered() -> None:
    put = StandingPut("EUR*", "What is the trend?", "commit", "q é")
    assert parse_standing(raw("q é".encode(), encode_standing(put)), "t") == StandingApply(7, "q é", put, "t")


def test_on_change_is_the_default() -> None:
    parsed = parse_standing(raw(b"q", b'{"session": "*", "question": "?"}'))
    assert parsed == StandingApply(7, "q", StandingPut("*", "?", "change", "q"))


def test_a_null_value_deletes() -> None:
    assert parse_standing(raw(b"q", None)) == StandingApply(7, "q", None)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "key_invalid"),
        (b"", b"{}", "key_invalid"),
        (b"\xff", b"{}", "key_invalid"),
        (b"a|b", b"{}", "key_invalid"),
        (b"x" * 257, b"{}", "key_invalid"),
        (b"q", b"", "not_json"),
        (b"q", b"{", "not_json"),
        (b"q", b'{"session": "\xff"}', "not_json"),
        (b"q", b'{"session": ' + b"[" * 5000, "not_a_standing_query"),
        (b"q", b"[]", "not_a_standing_query"),
        (b"q", b'{"session": "*"}', "not_a_standing_query"),
        (b"q", b'{"session": "", "question": "?"}', "not_a_standing_query"),
        (b"q", b'{"session": "*", "question": "?", "on": "tick"}', "not_a_standing_query"),
        (b"q", b'{"session": "*", "question": "?", "onn": "commit"}', "not_a_standing_query"),
    ],
)
def test_a_malformed_record_is_a_dead_letter_with_its_reason(key: bytes | None, value: bytes, reason: str) -> None:
    letter = parse_standing(raw(key, value))
    assert isinstance(letter, DeadLetter)
    assert (letter.reason, letter.value) == (reason, value)
    assert letter.detail
