"""Inputs that somebody means harm by: rubbish, and valid messages of which one part was replaced."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

NESTED = b'{"zz":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
"""40 KB of JSON, deeper than any decoder goes."""

_BAD_VALUES: tuple[Any, ...] = (
    None, True, "", " ", "|", "x" * 5_000, "\x00", "é\u202e𝔄", b"\xff\xfe", (), [[]], {}, {"a": [{}]},
    -1, 0, 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63),
    0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip

values = st.sampled_from(_BAD_VALUES) | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every part of a message, itself last."""
    children: list[tuple[Any, Any]] = []
    if isinstance(node, dict):
        children = list(node.items())
    elif isinstance(node, list):
        children = list(enumerate(node))
    return [*(found for key, child in children for found in places(child, (*path, key))), path]


@st.composite
def mutated(draw: st.DrawFn, valid: Any) -> Any:
    """``valid`` (of dicts, lists, plain values) with one to three of its parts replaced, removed, or repeated."""
    made = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        found = [path for path in places(made) if path]
        if not found:
            return made
        path = draw(st.sampled_from(found))
        node = made
        for key in path[:-1]:
            node = node[key]
        match draw(st.sampled_from(("replace", "replace", "remove", "repeat"))):
            case "remove":
                del node[path[-1]]
            case "repeat" if isinstance(node, list):
                node.append(copy.deepcopy(node[path[-1]]))
            case _:
                node[path[-1]] = copy.deepcopy(draw(values))
    return made
