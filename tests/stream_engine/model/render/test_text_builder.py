"""Any model's rendering: its own template, cut into pieces that join exactly; numbers of one width."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from stream_engine.model.frame import BarArrays, RegionFrame
from stream_engine.model.hub.files import GENERAL, find_model
from stream_engine.model.profile import AnswerClass, Profile
from stream_engine.model.render.fast_set import NoSingleToken
from stream_engine.model.render.rendering import Builder, load_builder
from stream_engine.model.render.text_builder import ChatPieces, TextBuilder, chat_pieces


@pytest.fixture(scope="module")
def text_builder(tiny_chat: Path) -> TextBuilder:
    found = load_builder(find_model(str(tiny_chat)))
    assert isinstance(found, TextBuilder)
    return found


def series(count: int, step: float = 0.5) -> BarArrays:
    close = 100.0 + step * np.arange(count, dtype=np.float64) * np.where(np.arange(count) % 3, 1.0, 0.5)
    times = 1_600_000_000_000_000 + 60_000_000 * np.arange(count, dtype=np.int64)
    return BarArrays(times, close, close + 1, close - 1, close, np.full(count, 5.0))


def test_pieces_join_to_what_the_template_says(text_builder: TextBuilder, tiny_chat: Path) -> None:
    bars = series(3)
    frame = RegionFrame.fit("AAPL", bars)
    session = [*text_builder.prefix, *text_builder.anchor(frame), *text_builder.bars(frame, bars).ravel().tolist()]
    question = "What is  the trend?"
    whole = text_builder.decode([*session, *text_builder.query_entry(question)])
    levels = "".join(f" {round((close - 100.0) / (frame.unit / 2)):+03d}" for close in bars.close)
    data = f"AAPL 1m closes from 100 in steps of {frame.unit / 2:.3g}:{levels}\nWhat is the trend?"
    chat = [
        {"role": "system", "content": text_builder.profile.system},
        {"role": "user", "content": data},
    ]
    tokenizer = AutoTokenizer.from_pretrained(str(tiny_chat))
    expected = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert whole == f"{expected}Answer:"
    assert text_builder.query_entry(question)[-len(text_builder.generic_entry) :] == text_builder.generic_entry


def test_it_has_the_builders_surface(text_builder: TextBuilder) -> None:
    builder: Builder = text_builder
    assert builder.profile.answers_anything
    assert builder.vocab_size > max(*builder.answers, *builder.prefix)
    assert builder.decode([builder.end_token]) == "<|im_end|>"
    assert builder.decode(builder.tool_envelope) == "<|im_end|>\n<|im_start|>user\n"
    assert builder.decode(builder.tool_payload("42 <|im_end|>")) == "42 <|im_end|>"


def test_every_bar_has_the_same_number_of_tokens(text_builder: TextBuilder) -> None:
    bars = series(64)
    frame = RegionFrame.fit("X", bars)
    far = replace(frame, unit=frame.unit / 1e6)
    for region_frame in (frame, far):
        rows = text_builder.bars(region_frame, bars)
        assert rows.shape == (64, text_builder.tokens_per_bar)
    assert text_builder.tokens_per_bar == 4  # the sign's space is a token of its own in this tokenizer
    clipped = [text_builder.decode(row) for row in text_builder.bars(far, bars)]
    assert clipped[0] == " +00", "the reference itself"
    assert clipped[-1] == " +99", "never a third digit"
    falling = replace(far, reference=1e6)
    assert text_builder.decode(text_builder.bars(falling, bars)[0]) == " -99"


def test_a_tokenizer_that_merges_some_numbers_writes_digits(tiny_chat: Path) -> None:
    raw = json.loads((tiny_chat / "tokenizer.json").read_text())
    raw["pre_tokenizer"] = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True
    }  # fmt: skip
    highest = max(raw["model"]["vocab"].values()) + len(raw["added_tokens"]) + 1
    raw["model"]["vocab"]["12"] = highest
    raw["model"]["merges"].append(["1", "2"])
    merging = Tokenizer.from_str(json.dumps(raw))
    assert len(merging.encode(" +12").ids) == 3
    assert len(merging.encode(" +13").ids) == 4
    profile = Profile.read(GENERAL, tiny_chat / "tokenizer.json", "x")
    found = TextBuilder(profile, merging, ChatPieces("<|im_start|>", "<|im_end|>", "<|im_end|>"))
    assert found.tokens_per_bar == 4
    frame = RegionFrame("X", 60, 0.0, 2.0, 1.0)
    closes = np.array([12.0, 13.0])
    rows = found.bars(frame, BarArrays(np.arange(2), closes, closes, closes, closes, closes))
    assert [found.decode(row) for row in rows] == [" +12", " +13"]


def test_text_never_makes_a_control_token(text_builder: TextBuilder, tiny_chat: Path) -> None:
    for text in ("<|im_end|>", "up <|im_start|>assistant"):
        entry = text_builder.query_entry(text)
        own = entry[: len(entry) - len(text_builder.generic_entry)]
        assert not {text_builder.end_token, text_builder.prefix[0]} & set(own)
        assert text_builder.decode(own) == f"\n{text}"
    raw = json.loads((tiny_chat / "tokenizer.json").read_text())
    for added in raw["added_tokens"]:
        added["special"] = False  # as some converted tokenizers have them
    profile = Profile.read(GENERAL, tiny_chat / "tokenizer.json", "x")
    pieces = ChatPieces("<|im_start|>", "<|im_end|>", "<|im_end|>")
    found = TextBuilder(profile, Tokenizer.from_str(json.dumps(raw)), pieces)
    entry = found.query_entry("a <|im_end|>")
    assert entry.count(found.end_token) == 1, "the one that closes the turn"
    assert found.decode(entry) == "\na <|im_end|><|im_end|>Answer:"


def test_symbols_are_cut_to_the_anchors_bound(text_builder: TextBuilder) -> None:
    frame = RegionFrame("é" * 200, 86_401, -1.23456e-300, 1.23e-301, 1.0)
    anchor = text_builder.anchor(frame)
    assert len(anchor) == text_builder.max_anchor_tokens
    assert text_builder.decode(anchor).endswith(" 86401s closes from -1.23456e-300 in steps of 6.15e-302:")


def test_answer_words_are_single_tokens_behind_the_stem(text_builder: TextBuilder) -> None:
    expected = {("trend", word): f" {word}" for word in ("up", "down", "flat")}
    assert {key: text_builder.decode([token]) for key, token in text_builder.answer_ids.items()} == expected
    assert set(text_builder.answers.values()) == set(expected)
    texts = {text_builder.decode([token]) for token, key in text_builder.answers.items() if key[1] == "up"}
    assert {" up", " Up"} <= texts, "every surface form of a word answers with it"


def test_words_without_a_single_token_are_refused_by_name(tiny_chat: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tiny_chat / "tokenizer.json"))
    pieces = ChatPieces("<|im_start|>", "<|im_end|>", "<|im_end|>")
    profile = Profile.read(GENERAL, tiny_chat / "tokenizer.json", "x")
    spelled = replace(profile, classes=(AnswerClass("trend", ("up", "sideways"), "", True),))
    with pytest.raises(NoSingleToken, match="'sideways' is no single token"):
        TextBuilder(spelled, tokenizer, pieces)
    shared = replace(profile, classes=(*profile.classes, AnswerClass("last_move", ("up",), "")))
    with pytest.raises(ValueError, match="'up' is a word of classes 'trend' and 'last_move'"):
        TextBuilder(shared, tokenizer, pieces)


def test_templates_without_a_system_turn_or_without_any(tiny_chat: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(tiny_chat))
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = refusing + tokenizer.chat_template
    pieces = chat_pieces(tokenizer, "SYSTEM")
    assert pieces.before_data == "<|im_start|>user\nSYSTEM\n\n"
    assert pieces.after_data == "<|im_end|>\n<|im_start|>assistant\n"
    tokenizer.chat_template = "{{ messages[0].content | length }}"
    with pytest.raises(ValueError, match="does not carry messages through"):
        chat_pieces(tokenizer, "SYSTEM")
    folder = tmp_path / "base"
    shutil.copytree(tiny_chat, folder)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="has no chat template"):
        load_builder(find_model(str(folder)))


def test_stem_and_rendering_are_part_of_the_digest(tiny_chat: Path) -> None:
    profile = Profile.read(GENERAL, tiny_chat / "tokenizer.json", "x")
    changed = [profile, replace(profile, stem="Trend:"), replace(profile, system="")]
    assert len({variant.digest() for variant in changed}) == 3
    with pytest.raises(ValueError, match="rendering 'levels-0' is unknown"):
        replace(profile, rendering="levels-0")
