"""What the code is held to that no linter knows: names, constructors, and who may change a session."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("stream_engine", "consumers", "query_api", "loadgen", "docgen")
Module = tuple[str, ast.Module]
Rule = Callable[[list[Module]], list[str]]

IN_ORDER = {
    "Bar": "open, high, low, close, volume: the order that everybody knows",
    "BarArrays": "the same, in columns",
    "Distribution": "six numbers in the order in which the model's row gives them",
    "RawRecord": "a Kafka record's own order",
    "Statistic": "rows of a table",
    "ModelShape": "rows of a table",
}
"""Structs of five fields or more that may be built by position, and why."""


def modules(packages: Sequence[str] = PACKAGES) -> list[Module]:
    """Every module of the packages, by its path."""
    files = [file for package in packages for file in sorted((ROOT / package).rglob("*.py"))]
    return [(str(file.relative_to(ROOT)), ast.parse(file.read_text(encoding="utf-8"))) for file in files]


def nodes(found: list[Module], kind: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    return (
        (f"{path}:{node.lineno}", node)
        for path, tree in found
        for node in ast.walk(tree)
        if isinstance(node, kind)
    )  # type: ignore[attr-defined]


def shared_class_names(found: list[Module]) -> list[str]:
    """Names that two classes have."""
    counts = Counter(node.name for _, node in nodes(found, ast.ClassDef) if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in counts.items() if count > 1)


def wide_constructors(found: list[Module], most: int = 6) -> list[str]:
    """Constructors that take more than ``most`` arguments."""
    wide = []
    for where, node in nodes(found, ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                arguments = member.args
                if len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1 > most:
                    wide.append(f"{where} {node.name}")
    return wide


def called_one(found: list[Module]) -> list[str]:
    """Variables and parameters that are called ``one``, though a noun exists; in the tests too."""
    stored = [
        where for where, node in nodes(found, ast.Name) if isinstance(node, ast.Name)
        and node.id == "one" and isinstance(node.ctx, ast.Store)
    ]  # fmt: skip
    return stored + [
        where for where, node in nodes(found, ast.arg) if isinstance(node, ast.arg) and node.arg == "one"
    ]


def by_position(found: list[Module], fewest: int = 5) -> list[str]:
    """Structs that are built from ``fewest`` arguments or more without naming them."""
    fields = {
        node.name: [each for each in node.body if isinstance(each, ast.AnnAssign)]
        for _, node in nodes(found, ast.ClassDef)
        if isinstance(node, ast.ClassDef)
    }
    return [
        f"{where} {node.func.id}"
        for where, node in nodes(found, ast.Call)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and len(fields.get(node.func.id, ())) >= fewest
        and len([argument for argument in node.args if not isinstance(argument, ast.Starred)]) >= fewest
        and node.func.id not in IN_ORDER
    ]


def changes_of_sessions(found: list[Module]) -> list[str]:
    """Places outside its own room where something is put into a session: it changes through its verbs."""
    verbs = {"append", "extend", "insert", "clear", "pop", "remove", "update", "setdefault", "add", "discard"}
    changes = []
    for where, node in nodes([(path, tree) for path, tree in found if "/session/" not in path], ast.Attribute):
        assert isinstance(node, ast.Attribute)
        stored = isinstance(node.ctx, ast.Store | ast.Del) and is_session(node.value)
        called = node.attr in verbs and isinstance(node.value, ast.Attribute) and is_session(node.value.value)
        if stored or called:
            changes.append(f"{where} {ast.unparse(node)}")
    return changes


def is_session(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == "session") or (
        isinstance(node, ast.Attribute) and node.attr == "session"
    )


@pytest.mark.parametrize(
    "rule", [shared_class_names, wide_constructors, called_one, by_position, changes_of_sessions]
)
def test_the_packages_keep_to_it(rule: Rule) -> None:
    assert rule(modules()) == []


def test_in_the_tests_too_a_variable_has_a_name() -> None:
    assert called_one(modules(("tests",))) == []


FIVE = "class A:\n a: int\n b: int\n c: int\n d: int\n e: int\n"


@pytest.mark.parametrize(
    ("rule", "source", "told"),
    [
        (shared_class_names, "class A: ...\nclass B: ...\nclass A: ...", ["A"]),
        (wide_constructors, "class A:\n def __init__(self, a, b, c, d, e, f, *, g): ...", ["m.py:1 A"]),
        (wide_constructors, "class A:\n def __init__(self, a, b, c, d, e, *, g): ...", []),
        (called_one, "x = [one for one in y]\nz = lambda one: 0", ["m.py:1", "m.py:2"]),
        (by_position, FIVE + "A(1, 2, 3, 4, 5)", ["m.py:7 A"]),
        (by_position, FIVE + "A(1, 2, 3, 4, e=5)", []),
        (changes_of_sessions, "session.version = 3", ["m.py:1 session.version"]),
        (changes_of_sessions, "work.session.tokens.append(4)", ["m.py:1 work.session.tokens.append"]),
        (changes_of_sessions, "x = session.version\nsession.move_to(LIVE)\nself.version = 4", []),
    ],
)
def test_what_breaks_a_rule_is_found(rule: Rule, source: str, told: list[str]) -> None:
    assert rule([("m.py", ast.parse(source))]) == told
