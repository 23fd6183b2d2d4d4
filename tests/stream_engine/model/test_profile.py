"""The profile: consistent by construction, questions matched after normalisation, a digest of what matters."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from stream_engine.model.profile import EMBEDDED, AnswerClass, Profile, normalise_question, read_questions


@pytest.fixture(scope="module")
def profile() -> Profile:
    return Profile.load(EMBEDDED)


def test_embedded_profile_is_answered_by_trend_from_the_generic_header(profile: Profile) -> None:
    assert profile.generic_class.name == "trend"
    assert profile.generic_class.words == ("up", "down", "flat")
    assert (profile.window_bars, profile.region_bars, profile.max_answer_tokens) == (32, 64, 1)
    assert all(profile.tau[answer_class.name] > 0 for answer_class in profile.classes)


def test_every_class_has_enough_wordings_and_none_twice(profile: Profile) -> None:
    assert all(len(profile.questions[answer_class.name]) >= 40 for answer_class in profile.classes)
    wordings = [normalise_question(text) for listed in profile.questions.values() for text in listed]
    assert len(set(wordings)) == len(wordings)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the trend?", "trend"),
        ("  what IS the\ttrend ?!", "trend"),
        ("What is the trend", "trend"),
        ("What is the trend of AAPL's supplier?", None),
        ("", None),
    ],
)
def test_a_question_is_matched_only_by_its_normalised_wording(
    profile: Profile, question: str, expected: str | None
) -> None:
    found = profile.class_of_question(question)
    assert (found.name if found else None) == expected


def test_each_listed_wording_belongs_to_its_own_class(profile: Profile) -> None:
    for name, listed in profile.questions.items():
        for question in listed:
            found = profile.class_of_question(question.upper())
            assert found is not None
            assert found.name == name


def test_digest_follows_what_changes_token_sequences_only(profile: Profile) -> None:
    same = replace(profile, tau={"trend": 9.0}, questions={"trend": ("Trend?",)})
    assert same.digest() == profile.digest()
    assert replace(profile, system="Something else.").digest() != profile.digest()
    assert replace(profile, window_bars=16).digest() != profile.digest()
    assert replace(profile, tokenizer_digest="0").digest() != profile.digest()


def test_inconsistent_profiles_are_refused() -> None:
    trend = AnswerClass("trend", ("up", "down"), "z", generic=True)
    other = AnswerClass("position", ("high", "low"), "q")
    with pytest.raises(ValueError, match="exactly one class"):
        Profile("p", "s", (other,))
    with pytest.raises(ValueError, match="named twice"):
        Profile("p", "s", (trend, trend))
    with pytest.raises(ValueError, match="window_bars"):
        Profile("p", "s", (trend,), window_bars=65)
    with pytest.raises(ValueError, match="unknown classes"):
        Profile("p", "s", (trend,), tau={"position": 1.0})


def test_wordings_file_needs_a_section_first(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "questions.txt"
    path.write_text("# note\nTrend?\n", encoding="utf-8")
    with pytest.raises(ValueError, match="before the first"):
        read_questions(path)
    path.write_text("[trend]\n# note\n\nTrend?\n", encoding="utf-8")
    assert read_questions(path) == {"trend": ("Trend?",)}


def test_profile_needs_no_torch() -> None:
    code = "import sys, stream_engine.model.profile; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
