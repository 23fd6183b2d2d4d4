"""Train and validate the question router: ``python -m stream_engine.training.router``.

The threshold is chosen on questions whose wording or template the regression has not seen (cross-validation by
group), never on the questions of ``tests/``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from stream_engine.model.profile import EMBEDDED, Profile
from stream_engine.questions.classifier import OTHER, WEIGHTS, QuestionClassifier, features
from stream_engine.questions.core import polar
from stream_engine.training.router_data import Example, examples

WRONG_SHARE = 0.001
"""Of validated questions, the share that a class may take which is not its own."""
FOLDS = 5
THRESHOLDS = tuple(round(0.5 + 0.01 * step, 2) for step in range(50))
INVERSE_REGULARISATION = 8.0
MIN_COUNT = 2

Classes = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Validation:
    """At the chosen thresholds, one a class, of questions from unseen wordings and templates: the share of each
    class's that is routed to it, and the share of all that it takes wrongly."""

    thresholds: tuple[float, ...]
    right: tuple[float, ...]
    wrong: tuple[float, ...]
    questions: int


def fit(found: list[Example], classes: Classes, thresholds: tuple[float, ...]) -> QuestionClassifier:
    """The regression on these examples. Deterministic."""
    names = [name for name, _ in classes] + [OTHER]
    counts: dict[str, int] = {}
    sets = [features(example.words) for example in found]
    for marks in sets:
        for feature in marks:
            counts[feature] = counts.get(feature, 0) + 1
    kept = sorted(feature for feature, count in counts.items() if count >= MIN_COUNT)
    index = {feature: row for row, feature in enumerate(kept)}
    rows = [[index[feature] for feature in marks if feature in index] for marks in sets]
    starts = np.cumsum([0, *map(len, rows)])
    flat = np.fromiter((at for row in rows for at in sorted(row)), np.int32, int(starts[-1]))
    matrix = csr_matrix((np.ones(len(flat), np.float32), flat, starts), shape=(len(found), len(index)))
    model = LogisticRegression(C=INVERSE_REGULARISATION, max_iter=300, tol=1e-3)
    model.fit(
        matrix,
        [names.index(example.question_class) for example in found],
        sample_weight=[example.weight for example in found],
    )
    right = [
        {w for example in found if example.question_class == name for w in example.words} for name, _ in classes
    ]
    return QuestionClassifier(
        classes=classes,
        index=index,
        weights=np.asarray(model.coef_.T, np.float16).astype(np.float32),
        bias=np.asarray(model.intercept_, np.float32),
        vocabulary=tuple(frozenset(words) for words in right),
        yes_or_no=frozenset(
            example.question_class for example in found if example.question_class != OTHER and polar(example.words)
        ),
        thresholds=thresholds,
    )


def validate(found: list[Example], classes: Classes) -> Validation:
    """Choose for each class the smallest threshold at which it wrongly takes at most ``WRONG_SHARE``."""
    names = [name for name, _ in classes]
    guessed: NDArray[np.int64] = np.full(len(found), len(names))
    probability = np.zeros(len(found))
    for learnt, held in GroupKFold(FOLDS).split(found, groups=[example.group for example in found]):
        classifier = fit([found[at] for at in learnt], classes, (0.0,) * len(classes))
        for at in held:
            verdict = classifier.classify(found[at].words)
            if verdict.question_class is not None:
                guessed[at] = names.index(verdict.question_class)
                probability[at] = verdict.probability
    truth = np.array([(*names, OTHER).index(example.question_class) for example in found])
    written = np.array([example.weight >= 1 for example in found])  # what is broken by chance is no one's question
    thresholds, right, wrong = [], [], []
    for at in range(len(names)):
        taken = {threshold: (guessed == at) & (probability >= threshold) & written for threshold in THRESHOLDS}
        mistaken = {
            threshold: float(np.mean((taken[threshold] & (truth != at))[written])) for threshold in THRESHOLDS
        }
        chosen = next(
            (threshold for threshold in THRESHOLDS if mistaken[threshold] <= WRONG_SHARE), THRESHOLDS[-1]
        )
        thresholds.append(chosen)
        right.append(float(np.mean(taken[chosen][truth == at])))
        wrong.append(mistaken[chosen])
    return Validation(tuple(thresholds), tuple(right), tuple(wrong), int(written.sum()))


def train(profile: Profile, seed: int = 7) -> tuple[QuestionClassifier, Validation]:
    """The classifier of a profile's classes, from its listed wordings and the templates."""
    classes = tuple((answer_class.name, answer_class.words) for answer_class in profile.classes)
    found = examples(profile.questions, profile.generic_class.name, np.random.default_rng(seed))
    validation = validate(found, classes)
    return fit(found, classes, validation.thresholds), validation


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the question router.")
    parser.add_argument("--profile", type=Path, default=EMBEDDED, help="model folder; default: the embedded one")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    classifier, validation = train(Profile.load(options.profile), options.seed)
    classifier.save(options.out)
    print(f"validated on {validation.questions} questions of unseen wordings and templates")
    print("class       threshold  its own routed to it  of all taken wrongly")
    for (name, _), *numbers in zip(
        classifier.classes, validation.thresholds, validation.right, validation.wrong, strict=True
    ):
        print("{:<11} {:9.2f} {:21.3f} {:21.4f}".format(name, *numbers))
    print(f"{options.out}: {options.out.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
