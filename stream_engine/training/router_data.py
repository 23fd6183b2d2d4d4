"""Questions that the router learns from: listed wordings, templates, and pieces of both put together wrongly."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from stream_engine.model.profile import read_questions
from stream_engine.questions.classifier import OTHER
from stream_engine.questions.core import core, polar

TEMPLATES = Path(__file__).parent / "router_questions.txt"

LISTED_WEIGHT = 4.0
BROKEN_WEIGHT = 0.2
_SAMPLES = 60
_MAX_EXPANSIONS = 30_000
_CHOICE = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"\$(\w+)")


@dataclass(frozen=True, slots=True)
class Example:
    """One question's core. ``group`` names the wording or template that it comes from: what is validated on shares
    none with what was learnt from."""

    words: tuple[str, ...]
    question_class: str
    group: str
    weight: float = 1.0


def expand(template: str, lists: Mapping[str, str]) -> Iterator[str]:
    """Every text of a template: `{a|b}` is a choice, also inside another one, `$name` one of ``lists``."""
    while (name := _NAME.search(template)) is not None:
        template = f"{template[: name.start()]}{lists[name.group(1)]}{template[name.end() :]}"
    yield from itertools.islice(_choices(template), _MAX_EXPANSIONS)


def _choices(template: str) -> Iterator[str]:
    choice = _CHOICE.search(template)
    if choice is None:
        yield " ".join(template.split())
        return
    for option in choice.group(1).split("|"):
        yield from _choices(f"{template[: choice.start()]}{option}{template[choice.end() :]}")


def read_templates(path: Path = TEMPLATES) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The templates by class, and the lists as choices."""
    sections = read_questions(path)
    lists = dict(line.split(" = ", 1) for line in sections.pop("lists"))
    return sections, lists


@cache
def expansions(classes: frozenset[str]) -> dict[tuple[str, str], list[tuple[str, ...]]]:
    """By class and template, the cores of everything that the template can say. Takes seconds."""
    templates, lists = read_templates()
    return {
        (name, template): sorted({words for text in expand(template, lists) if (words := core(text))})
        for name, section in templates.items()
        if name in classes
        for template in section
    }


def examples(listed: Mapping[str, tuple[str, ...]], generic: str, rng: np.random.Generator) -> list[Example]:
    """All of them, of the classes that ``listed`` has. Yes-or-no wordings of the ``generic`` class are left to the
    list itself: from ``is it trending`` nothing is to be learnt about ``is it rising``."""
    known: dict[tuple[str, ...], str] = {}
    found: list[Example] = []
    for name, wordings in listed.items():
        for wording in wordings:
            words = core(wording)
            if words is None:
                continue
            known.setdefault(words, name)
            if name != generic or not polar(words):
                found.append(Example(words, name, f"{name}: {wording}", LISTED_WEIGHT))
    expanded = expansions(frozenset((*listed, OTHER)))
    for (name, _), texts in expanded.items():
        if name != OTHER:
            for words in texts:
                known.setdefault(words, name)
    for (name, template), texts in expanded.items():
        picked = _sample([texts[at] for at in rng.permutation(len(texts))])
        found += [
            Example(words, name, f"{name}: {template}")
            for words in picked
            if (known.get(words) == name if name != OTHER else words not in known)
        ]
    return found + _broken(found, known, rng)


def _sample(shuffled: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The first ones, and of the others those that have a new word: a word left out would be one not known."""
    picked, seen = shuffled[:_SAMPLES], {word for words in shuffled[:_SAMPLES] for word in words}
    for words in shuffled[_SAMPLES:]:
        if not seen.issuperset(words):
            picked.append(words)
            seen.update(words)
    return picked


def _broken(found: list[Example], known: Mapping[tuple[str, ...], str], rng: np.random.Generator) -> list[Example]:
    """Of no class: questions cut short or shuffled, and a class's words at random. What such a piece happens to
    say that a class does answer is left out; what is close to it counts little."""
    right = [example for example in found if example.question_class != OTHER]
    made: dict[tuple[str, ...], str] = {}
    for example in right:
        words, group = example.words, example.group
        if len(words) > 1:
            made[words[: rng.integers(1, len(words) // 2 + 1)]] = group
            made[tuple(words[at] for at in rng.permutation(len(words)))] = group
    for name in dict.fromkeys(example.question_class for example in right):
        vocabulary = sorted(
            {word for example in right if example.question_class == name for word in example.words}
        )
        for number in range(600):
            made[tuple(rng.choice(vocabulary, rng.integers(1, 7)).tolist())] = f"random {name} {number // 20}"
    return [Example(words, OTHER, group, BROKEN_WEIGHT) for words, group in made.items() if words not in known]
