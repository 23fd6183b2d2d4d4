"""The question classifier: which class a wording that no profile lists belongs to, or none.

A multinomial logistic regression on word sequences over a closed vocabulary. It errs towards abstaining: a word
that no wording of the class has, a yes-or-no form that none of them has, two questions in one, or a probability
below the class's threshold, and the question has no class. Its weights (``training/router.py`` makes them) are
NumPy arrays; nothing here needs torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_engine.questions.core import polar, several

WEIGHTS = Path(__file__).parent / "classifier.npz"
"""The weights that come with the package."""

OTHER = "other"
REACH = 4
"""Pairs of words are features up to this distance."""
MAX_WORDS = 24
"""A longer question asks for more than a class answers."""


def features(words: tuple[str, ...]) -> set[str]:
    """What the regression sees: words, runs of two and three with the ends marked, pairs with words between."""
    marked = ("^", *words, "$")
    found = set(words)
    for size in (2, 3):
        found.update(" ".join(marked[at : at + size]) for at in range(len(marked) - size + 1))
    for distance in range(2, REACH + 1):
        found.update(f"{left} .. {right}" for left, right in zip(marked, marked[distance:], strict=False))
    return found


@dataclass(frozen=True, slots=True)
class ClassVerdict:
    """``question_class`` is None where the classifier abstains; ``probability`` is that of the likeliest class."""

    question_class: str | None
    probability: float


@dataclass(frozen=True, slots=True)
class QuestionClassifier:
    """``classes`` are (name, answer words); ``weights`` float32 [features, classes + 1], its last column and that
    of ``bias`` [classes + 1] for no class; ``vocabulary`` and ``thresholds`` are by class; ``yes_or_no`` names the
    classes whose wordings may ask for yes or no."""

    classes: tuple[tuple[str, tuple[str, ...]], ...]
    index: dict[str, int]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    vocabulary: tuple[frozenset[str], ...]
    yes_or_no: frozenset[str]
    thresholds: tuple[float, ...]

    def probabilities(self, words: tuple[str, ...]) -> NDArray[np.float32]:
        """Of each class and, last, of none: [classes + 1]."""
        rows = [row for feature in features(words) if (row := self.index.get(feature)) is not None]
        scores = self.bias + self.weights[rows].sum(axis=0)
        exponentials = np.exp(scores - scores.max())
        return np.asarray(exponentials / exponentials.sum(), np.float32)

    def classify(self, words: tuple[str, ...]) -> ClassVerdict:
        """The class of a question's core (``question_core.core``)."""
        if not 0 < len(words) <= MAX_WORDS or several(words):
            return ClassVerdict(None, 0.0)
        probabilities = self.probabilities(words)
        likeliest = int(probabilities[:-1].argmax())
        probability = float(probabilities[likeliest])
        name = self.classes[likeliest][0]
        sure = probability >= self.thresholds[likeliest] and self.vocabulary[likeliest].issuperset(words)
        return ClassVerdict(name if sure and (name in self.yes_or_no or not polar(words)) else None, probability)

    def save(self, path: Path) -> None:
        head: dict[str, Any] = {
            "classes": self.classes,
            "vocabulary": [sorted(words) for words in self.vocabulary],
            "yes_or_no": sorted(self.yes_or_no),
            "thresholds": self.thresholds,
            "features": list(self.index),
        }
        blob = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
        np.savez_compressed(path, head=blob, weights=self.weights.astype(np.float16), bias=self.bias)

    @classmethod
    def load(cls, path: Path) -> QuestionClassifier:
        """Raises OSError or ValueError where the file is not one of ``save``."""
        with np.load(path, allow_pickle=False) as arrays:
            head = json.loads(arrays["head"].tobytes())
            return cls(
                classes=tuple((name, tuple(words)) for name, words in head["classes"]),
                index={feature: row for row, feature in enumerate(head["features"])},
                weights=arrays["weights"].astype(np.float32),
                bias=arrays["bias"],
                vocabulary=tuple(frozenset(words) for words in head["vocabulary"]),
                yes_or_no=frozenset(head["yes_or_no"]),
                thresholds=tuple(head["thresholds"]),
            )


@cache
def packaged() -> QuestionClassifier:
    """The package's own."""
    return QuestionClassifier.load(WEIGHTS)
