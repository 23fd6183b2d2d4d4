"""Training of the question router: templates, examples, and the choice of thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from stream_engine.questions.classifier import OTHER
from stream_engine.questions.core import core, polar
from stream_engine.training.router import Classes, fit, validate
from stream_engine.training.router_data import Example, examples, expand, read_templates

CLASSES: Classes = (("trend", ("up", "down")), ("volume", ("rising", "falling")))


def made(repeat: int = 8) -> list[Example]:
    """Two classes and none, each of ``repeat`` groups."""
    texts = {
        "trend": "which way is {} going", "volume": "is volume of {} rising or falling", OTHER: "why is {} going"
    }  # fmt: skip
    return [
        Example(tuple(text.format(noun).split()), name, f"{name} {group}")
        for name, text in texts.items()
        for group in range(repeat)
        for noun in ("it", "price", "stock", "market")
    ]


def test_templates_expand_to_every_choice() -> None:
    texts = set(expand("is $it {up|down or {flat|sideways}|}", {"it": "{it|the price}"}))
    assert texts == {
        "is it up", "is it down or flat", "is it down or sideways", "is it",
        "is the price up", "is the price down or flat", "is the price down or sideways", "is the price",
    }  # fmt: skip


def test_every_template_of_the_package_expands() -> None:
    templates, lists = read_templates()
    assert {"trend", "position", "momentum", "volatility", "last_move", "volume", OTHER} == set(templates)
    for section in templates.values():
        for template in section:
            text = next(expand(template, lists))
            assert not set(text) & set("{}|$"), template


def test_examples_are_reproducible_and_teach_no_yes_or_no_of_the_generic_class() -> None:
    listed = {"trend": ("Is it trending?", "What is the trend?"), "volume": ("Is volume rising?",)}
    found = examples(listed, "trend", np.random.default_rng(3))
    assert found == examples(listed, "trend", np.random.default_rng(3))
    assert found != examples(listed, "trend", np.random.default_rng(4))
    by_class = {
        name: [example for example in found if example.question_class == name] for name in (*listed, OTHER)
    }
    assert all(by_class.values())
    assert {example.question_class for example in found} == {*listed, OTHER}
    assert not any(polar(example.words) for example in by_class["trend"])
    assert any(polar(example.words) for example in by_class["volume"])
    right = {example.words for name in listed for example in by_class[name]}
    assert not right & {example.words for example in by_class[OTHER]}
    assert core("Is it trending?") not in {example.words for example in by_class[OTHER]}


def test_the_regression_learns_and_is_deterministic() -> None:
    first, again = (fit(made(), CLASSES, (0.5, 0.5)) for _ in range(2))
    assert first.classify(("which", "way", "is", "stock", "going")).question_class == "trend"
    assert first.classify(("is", "volume", "of", "it", "rising", "or", "falling")).question_class == "volume"
    assert first.classify(("why", "is", "it", "going")).question_class is None
    assert np.array_equal(first.weights, again.weights)


def test_a_threshold_rises_until_wrong_questions_are_few() -> None:
    clean = validate(made(), CLASSES)
    assert clean.thresholds == (0.5, 0.5)
    assert clean.right == (1.0, 1.0)
    assert clean.wrong == (0.0, 0.0)
    assert clean.questions == len(made())
    # The same words under both labels: no threshold but the highest keeps them out of the class.
    mixed = made() + [Example(example.words, OTHER, f"x{at}") for at, example in enumerate(made()[:8])]
    assert validate(mixed, CLASSES).thresholds[0] > 0.5


@pytest.mark.parametrize("weight", [0.2, 1.0])
def test_pieces_broken_by_chance_do_not_count_in_validation(weight: float) -> None:
    broken = [Example(("going", "it", str(at % 2)), OTHER, f"b{at}", weight) for at in range(8)]
    assert validate(made() + broken, CLASSES).questions == len(made()) + (8 if weight == 1.0 else 0)
