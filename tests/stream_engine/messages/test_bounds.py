"""No field of a message between processes is without a bound."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import inspect

from stream_engine.messages import EventEnvelope, FromEngine, Status, ToEngine

BOUNDED_OTHERWISE = {
    "Bar.volume": "NaN where the source has none: checked as it is decoded",
    "Check.token_hash": "64 bits without a sign, which is what a message can carry at most",
}


def unbounded(kind: inspect.Type, field: str, seen: set[type]) -> list[str]:
    """The fields of ``kind``, and of what it holds, that take any number, any text, or any count."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            low, high = (kind.ge, kind.gt), (kind.le, kind.lt)
            return [field] if low == (None, None) or high == (None, None) else []
        case inspect.StrType():
            return [field] if kind.max_length is None and kind.pattern is None else []
        case inspect.BytesType():
            return [field] if kind.max_length is None else []
        case inspect.VarTupleType() | inspect.ListType():
            return [field] * (kind.max_length is None) + unbounded(kind.item_type, f"{field}[]", seen)
        case inspect.DictType():
            within = unbounded(kind.key_type, f"{field} key", seen) + unbounded(
                kind.value_type, f"{field}[]", seen
            )
            return [field] * (kind.max_length is None) + within
        case inspect.UnionType():
            return [found for each in kind.types for found in unbounded(each, field, seen)]
        case inspect.StructType():
            if kind.cls in seen:
                return []
            seen.add(kind.cls)
            name = kind.cls.__name__
            return [found for each in kind.fields for found in unbounded(each.type, f"{name}.{each.name}", seen)]
        case inspect.LiteralType() | inspect.BoolType() | inspect.NoneType():
            return []
        case _:
            return [f"{field}: {type(kind).__name__}"]


@pytest.mark.parametrize("kind", [ToEngine, FromEngine, EventEnvelope], ids=["to the engine", "from it", "events"])
def test_every_field_of_a_message_has_a_bound(kind: Any) -> None:
    found = unbounded(inspect.type_info(kind), "", set())
    assert [field for field in found if field not in BOUNDED_OTHERWISE] == []


class Inner(msgspec.Struct):
    number: int
    half: float = 0.0


class Outer(msgspec.Struct):
    name: str
    raw: bytes
    inner: tuple[Inner, ...]
    table: dict[str, Any]
    sure: bool = True


def test_what_has_no_bound_is_found() -> None:
    assert unbounded(inspect.type_info(Outer), "", set()) == [
        "Outer.name", "Outer.raw", "Outer.inner", "Inner.number", "Inner.half", "Outer.table", "Outer.table key",
        "Outer.table[]: AnyType",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"uptime_s": float("nan")},
        {"consumers": -1},
        {"reasons": ["x" * 40_000]},
        {"lag": {"market.bars": 3}},
        {"counters": {"commits_total": float("inf")}},
        {"records": {"not hexadecimal": {}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_status_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    report = {
        "model": "m", "generic_class": "trend", "file": None, "check_share": 0.1, "level": 0.05, "horizon": 10,
        "classes": [], "dropped": {}, "waiting": 0,
    }  # fmt: skip
    status = {
        "type": "Status", "boot_id": "b", "model": "m", "ready": True, "reasons": [], "uptime_s": 1.0,
        "oldest_work_s": 0.0, "consumers": 1, "partitions": [], "lag": {}, "counters": {}, "gauges": {},
        "calibration": report,
    }  # fmt: skip
    assert isinstance(msgspec.convert(status, Status), Status)
    with pytest.raises(msgspec.ValidationError, match=next(iter(change))):
        msgspec.convert(status | change, Status)
