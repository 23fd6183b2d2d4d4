"""How one model is spoken to: the profile that lies beside its weights."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stream_engine.model.frame import RENDERING

EMBEDDED = Path(__file__).parent / "embedded"
"""Folder of the model that comes with the package: weights, tokenizer, profile, questions, card."""

PROFILE_FILE = "profile.json"
QUESTIONS_FILE = "questions.txt"
TOKENIZER_FILE = "tokenizer.json"

TEXT_RENDERING = "text-2"
"""Version of the rendering through a model's own chat template (`text_builder.py`)."""


@dataclass(frozen=True, slots=True)
class AnswerClass:
    """One kind of question: its possible answer words and the statistic that defines the right one."""

    name: str
    words: tuple[str, ...]
    formula: str
    generic: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """System text, window sizes (in bars), answer classes, gate thresholds and listed questions of one model.

    `tau` maps a class to its gate threshold in logits (`Eq. 12`); `questions` maps a class to the wordings
    that are routed to it; `tokenizer_digest` ties the profile to the tokenizer file it was loaded beside.
    `rendering` says how bars become tokens; `stem` begins every answer of the text rendering. A model that
    `answers_anything` takes questions of no class as they are, on the full path.
    """

    name: str
    system: str
    classes: tuple[AnswerClass, ...]
    window_bars: int = 32
    region_bars: int = 64
    max_answer_tokens: int = 1
    tau: Mapping[str, float] = field(default_factory=dict)
    questions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tokenizer_digest: str = ""
    rendering: str = RENDERING
    stem: str = ""
    answers_anything: bool = False

    def __post_init__(self) -> None:
        if self.rendering not in (RENDERING, TEXT_RENDERING):
            known = f"{RENDERING!r} and {TEXT_RENDERING!r}"
            raise ValueError(f"profile {self.name!r}: rendering {self.rendering!r} is unknown; known are {known}")
        names = [answer_class.name for answer_class in self.classes]
        if len(set(names)) != len(names):
            raise ValueError(f"profile {self.name!r}: a class is named twice: {names}")
        if sum(answer_class.generic for answer_class in self.classes) != 1:
            raise ValueError(f"profile {self.name!r}: exactly one class must be answered by the generic header")
        if not 0 < self.window_bars <= self.region_bars:
            raise ValueError(f"profile {self.name!r}: need 0 < window_bars <= region_bars")
        unknown = (set(self.tau) | set(self.questions)) - set(names)
        if unknown:
            raise ValueError(f"profile {self.name!r}: tau or questions name unknown classes {sorted(unknown)}")
        if not all(math.isfinite(tau) for tau in self.tau.values()):
            raise ValueError(f"profile {self.name!r}: every tau must be finite")

    @classmethod
    def load(cls, directory: Path) -> Profile:
        """Read the profile, its questions and the tokenizer's digest from a model folder.

        Raises FileNotFoundError where the folder has no profile, ValueError where it is not consistent.
        """
        return cls.read(directory / PROFILE_FILE, directory / TOKENIZER_FILE)

    @classmethod
    def read(cls, profile_path: Path, tokenizer_path: Path, name: str = "") -> Profile:
        """Read a profile, with the questions beside it, for a model that has its tokenizer somewhere else.

        `name` names the model where the profile is for any. Raises as `load`.
        """
        raw = json.loads(profile_path.read_text(encoding="utf-8"))
        questions_path = profile_path.parent / raw.get("questions", QUESTIONS_FILE)
        questions = read_questions(questions_path) if questions_path.exists() else {}
        if "questions" in raw:  # another profile's file: of its classes, only those that this one has
            questions = {entry["name"]: questions.get(entry["name"], ()) for entry in raw["classes"]}
        digest = hashlib.sha256(tokenizer_path.read_bytes()).hexdigest() if tokenizer_path.exists() else ""
        classes = tuple(
            AnswerClass(entry["name"], tuple(entry["words"]), entry["formula"], bool(entry.get("generic", False)))
            for entry in raw["classes"]
        )
        return cls(
            name=raw["name"] or name,
            system=raw["system"],
            classes=classes,
            window_bars=int(raw["window_bars"]),
            region_bars=int(raw["region_bars"]),
            max_answer_tokens=int(raw["max_answer_tokens"]),
            tau={answer_class.name: float(raw["tau"].get(answer_class.name, 2.0)) for answer_class in classes},
            questions=questions,
            tokenizer_digest=digest,
            rendering=raw.get("rendering", RENDERING),
            stem=raw.get("stem", ""),
            answers_anything=bool(raw.get("answers_anything", False)),
        )

    @property
    def generic_class(self) -> AnswerClass:
        """The class that the question-independent assistant header answers."""
        return next(answer_class for answer_class in self.classes if answer_class.generic)

    def class_of_question(self, question: str) -> AnswerClass | None:
        """The class whose listed wordings hold this question, after normalisation; None where there is none."""
        wanted = normalise_question(question)
        for answer_class in self.classes:
            if any(normalise_question(listed) == wanted for listed in self.questions.get(answer_class.name, ())):
                return answer_class
        return None

    def digest(self) -> str:
        """Hash of everything that changes a token sequence or what an answer token means (hex, 32 digits)."""
        parts = {
            "system": self.system,
            "windows": [self.window_bars, self.region_bars, self.max_answer_tokens],
            "classes": [
                [answer_class.name, list(answer_class.words), answer_class.generic]
                for answer_class in self.classes
            ],
            "rendering": self.rendering,
            "tokenizer": self.tokenizer_digest,
        }
        if self.stem:
            parts["stem"] = self.stem
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def normalise_question(text: str) -> str:
    """Fold case, collapse white space and drop trailing `?`, `.`, `!`: what makes two wordings the same."""
    return " ".join(text.casefold().split()).rstrip("?.! ")


def read_questions(path: Path) -> dict[str, tuple[str, ...]]:
    """Parse a wordings file: `[class]` opens a section, then one wording a line; `#` starts a comment line."""
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for raw in path.read_text(encoding="utf-8").splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            current = sections.setdefault(line[1:-1], [])
        elif current is None:
            raise ValueError(f"{path.name}: wording before the first [class] section: {line!r}")
        else:
            current.append(line)
    return {name: tuple(lines) for name, lines in sections.items()}
