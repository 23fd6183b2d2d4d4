"""Findings: what was looked at, what was found, and what to do where that is not right."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, what was found, and what to do where that is not right."""

    level: Level
    subject: str
    message: str
    remedy: str = ""


def ok(subject: str, message: str) -> Finding:
    return Finding(Level.OK, subject, message)


def warning(subject: str, message: str, remedy: str) -> Finding:
    return Finding(Level.WARNING, subject, message, remedy)


def problem(subject: str, message: str, remedy: str) -> Finding:
    return Finding(Level.PROBLEM, subject, message, remedy)
