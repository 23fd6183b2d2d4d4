"""Command lines as the documentation gives them: fenced blocks, code in a line, examples of `--help`."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
PROGRAMS = ("stream-engine", "loadgen", "make", "python", "pytest", "curl", "docker", "pip")
"""What a command line begins with, after its environment; any other program in a block of a shell fails a test."""

SHELLS = ("sh", "bash", "shell", "console")
_FENCE = re.compile(r"^ *```(\S*)[^\n]*\n(.*?)^ *```", re.M | re.S)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=")
_CHOICES = re.compile(r"\b[\w-]+(?:\|[\w-]+)+\b")
_JOINTS = ("&&", "||", ";", "|", "&")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """One simple command: `environment` set in front of it, then the program and its arguments."""

    where: str
    environment: tuple[tuple[str, str], ...]
    words: tuple[str, ...]
    named_only: bool = False
    """In the text, where `stream-engine calibrate` names a command and gives no line to type."""

    @property
    def program(self) -> str:
        return self.words[0].rpartition("/")[2].removesuffix("3") if self.words else ""

    def __str__(self) -> str:
        return f"{self.where}: {shlex.join([*(f'{k}={v}' for k, v in self.environment), *self.words])}"


def pages() -> list[Path]:
    """Every page that people read, but for what lies in environments and caches."""
    return sorted(
        page
        for page in ROOT.rglob("*.md")
        if not any(part.startswith(".") or part in ("runs", "site") for part in page.relative_to(ROOT).parts)
    )


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of each fenced block."""
    yield from _FENCE.findall(text)


def of_page(page: Path) -> Iterator[CommandLine]:
    text, where = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    for language, content in blocks(text):
        if language and language not in SHELLS:
            continue
        lines = _joined(content.splitlines())
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        strict = language in SHELLS and bool(prompted or language != "console")
        for line in prompted or lines:
            yield from commands(where, line, strict)
    for span in _SPAN.findall(_FENCE.sub("", text)):
        line = " ".join(span.split())
        yield from (
            replace(command, named_only=True) for command in commands(where, line, False) if len(command.words) > 1
        )


def of_help(command: click.Command, path: str) -> Iterator[CommandLine]:
    for line in _joined((command.help or "").splitlines()):
        yield from commands(f"{path} --help", re.split(r" {3,}", line.strip())[0], False)
    if isinstance(command, click.Group):
        for name, sub in command.commands.items():
            yield from of_help(sub, f"{path} {name}")


def commands(where: str, line: str, strict: bool) -> Iterator[CommandLine]:
    """The simple commands of a line; where it is not `strict`, only those of programs that are known."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.commenters = "#"
        lexer.whitespace_split = True
        tokens = [*lexer] if not (choices := _CHOICES.search(line)) else []
    except ValueError:  # prose with an apostrophe
        return
    if choices:
        for choice in choices.group().split("|"):
            yield from commands(where, line.replace(choices.group(), choice, 1), strict)
        return
    for joint, group in itertools.groupby(tokens, _JOINTS.__contains__):
        if joint:
            continue
        words = list(group)
        names = list(itertools.takewhile(_ASSIGNMENT.match, words))
        command = CommandLine(
            where, tuple((name, value) for name, _, value in (assignment.partition("=") for assignment in names)),
            tuple(words[len(names) :]),
        )  # fmt: skip
        if command.program in PROGRAMS or (strict and words):
            yield command


def _joined(lines: list[str]) -> list[str]:
    """Lines, with those that end in a backslash joined to the next."""
    return "\n".join(lines).replace("\\\n", " ").splitlines()
