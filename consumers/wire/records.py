"""Wire format to bars: raw Kafka records in, good records and dead letters out. Trades are read by the same rules.

A value is JSON: one bar (an object) or a list of bars. Field names are matched through ``ALIASES``; numbers may
be strings; the symbol may be left to the record's key. A whole poll is parsed at once: JSON and field names here,
numbers, times and rules as columns in ``consumers.wire.columns``. Nothing is dropped: every bar of every record
comes back either good or as a dead letter with a reason and a sentence that says what to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import msgspec

from consumers.wire.columns import BAR_NUMBERS, Columns, validate_bars
from consumers.wire.reasons import DeadLetter, RawRecord, Reason
from consumers.wire.shapes import BAR_SHAPES, BAR_STARTS, Shape
from stream_engine.messages import Bar, Record
from stream_engine.messages.bounds import MAX_BARS

T = TypeVar("T")

MAX_KEY_CHARACTERS = 200

ALIASES = {
    "open": "open",
    "o": "open",
    "high": "high",
    "h": "high",
    "low": "low",
    "l": "low",
    "close": "close",
    "c": "close",
    "volume": "volume",
    "v": "volume",
    "ts": "time",
    "t": "time",
    "timestamp": "time",
    "time": "time",
    "symbol": "symbol",
    "sym": "symbol",
    "s": "symbol",
    "S": "symbol",
}
REQUIRED = ("time", "open", "high", "low", "close")

_decode = msgspec.json.Decoder().decode
_SHOWN = 60
"""Characters of a received value that a detail repeats."""


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """What one raw record became. ``record`` is None where no bar of it is good; its ``bars`` are in time order.

    ``bars_seen`` = good items + dead-lettered ones; a record that holds no item at all counts as one dead letter.
    Of trades, ``record`` is the bars that this one showed or closed, and ``folded`` are earlier raw records of its
    key in the poll, which had none to show and share its fate; ``repeated``: nothing in it but repeated trades."""

    raw: RawRecord
    record: Record | None
    dead: tuple[DeadLetter, ...]
    bars_seen: int
    folded: tuple[RawRecord, ...] = ()
    repeated: bool = False


class _Bad(Exception):
    """One item or record that cannot be taken; carried to the dead letter."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Wire(Generic[T]):
    """How one kind of item is written: names of its fields, those it must have, its numbers, and its rules."""

    noun: str
    example: str
    unlike: Reason
    aliases: Mapping[str, str]
    required: Sequence[str]
    numbers: Sequence[str]
    validate: Callable[[Columns], Iterator[T | tuple[Reason, str]]]
    shapes: Sequence[Shape]
    rivals: Sequence[str]
    """Names beside which a time of another value is not taken: one of the two is something else."""


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """A good item: its place in the record's list, as received, its fields under their one name, its value."""

    position: int
    received: Any
    fields: Mapping[str, Any]
    value: T


@dataclass(frozen=True, slots=True)
class ParsedItems(Generic[T]):
    """``seen`` = good + dead; a record that holds no item at all counts as one dead letter."""

    raw: RawRecord
    key: str
    good: tuple[Item[T], ...]
    dead: tuple[DeadLetter, ...]
    seen: int


BARS: Wire[Bar] = Wire(
    noun="bar",
    example='{"open": ...}',
    unlike=Reason.NOT_A_BAR,
    aliases=ALIASES,
    required=REQUIRED,
    numbers=BAR_NUMBERS,
    validate=validate_bars,
    shapes=BAR_SHAPES,
    rivals=BAR_STARTS,
)


def parse_records(raws: Sequence[RawRecord]) -> list[ParsedRecord]:
    """Parse a poll's records; the result is aligned with ``raws``. Never raises for what a record holds."""
    parsed = []
    for items in parse_items(raws, BARS):
        bars = sorted((item.value for item in items.good), key=lambda bar: bar.time_us)
        record = Record(items.key, items.raw.offset, items.raw.timestamp_ms, tuple(bars)) if bars else None
        parsed.append(ParsedRecord(items.raw, record, items.dead, items.seen))
    return parsed


def parse_items(raws: Sequence[RawRecord], wire: Wire[T]) -> list[ParsedItems[T]]:
    """The same for any kind of item."""
    columns = Columns(wire.numbers)
    owners: list[tuple[int, int, Any, dict[str, Any]]] = []  # record, place, as received, fields: a row of columns
    keys: list[str] = []
    seen = [0] * len(raws)
    dead: list[list[DeadLetter]] = [[] for _ in raws]
    for index, raw in enumerate(raws):
        try:
            if raw.fault is not None:
                raise _Bad(Reason.UNREADABLE, raw.fault)
            key = _key_of(raw.key)
            items = _items_of(raw.value, wire)
        except _Bad as bad:
            keys.append("")
            seen[index] = 1
            dead[index].append(DeadLetter(raw, raw.value, bad.reason, bad.detail))
            continue
        keys.append(key)
        seen[index] = len(items)
        for position, item in enumerate(items):
            try:
                fields = _fields_of(item, key, wire)
                columns.append(fields, raw.timestamp_ms)
                owners.append((index, position, item, fields))
            except _Bad as bad:
                dead[index].append(letter_of(raw, position, item, bad.reason, bad.detail))

    good: list[list[Item[T]]] = [[] for _ in raws]
    for (index, position, item, fields), checked in zip(owners, wire.validate(columns), strict=True):
        if isinstance(checked, tuple) and isinstance(checked[0], Reason):
            dead[index].append(letter_of(raws[index], position, item, *checked))
        else:
            good[index].append(Item(position, item, fields, cast(T, checked)))

    parsed = []
    for index, raw in enumerate(raws):
        if len(good[index]) + len(dead[index]) != seen[index]:
            raise RuntimeError(f"offset {raw.offset}: {seen[index]} items in, but not as many out")
        letters = whole(raw, dead[index], seen[index])
        parsed.append(
            ParsedItems(raw=raw, key=keys[index], good=tuple(good[index]), dead=letters, seen=seen[index])
        )
    return parsed


def letter_of(raw: RawRecord, position: int, received: Any, reason: Reason, detail: str) -> DeadLetter:
    """The dead letter of one item of a list."""
    return DeadLetter(raw=raw, value=_to_json(received), reason=reason, detail=detail, bar=position)


def whole(raw: RawRecord, dead: Iterable[DeadLetter], seen: int) -> tuple[DeadLetter, ...]:
    """Dead letters in the order of the list; a record whose only item is bad keeps its bytes as they came."""
    dead = tuple(dead)
    if seen == 1 and dead:
        return (replace(dead[0], value=raw.value, bar=None),)
    return tuple(sorted(dead, key=lambda letter: letter.bar or 0))


def _key_of(key: bytes | None) -> str:
    if not key:
        raise _Bad(Reason.KEY_MISSING, "the record has no key: produce it with the symbol as key")
    try:
        text = key.decode()
    except UnicodeDecodeError:
        raise _Bad(Reason.KEY_INVALID, "the key is not UTF-8 text: use the symbol itself as key") from None
    if len(text) > MAX_KEY_CHARACTERS or not text.isprintable() or text != text.strip():
        rule = f"at most {MAX_KEY_CHARACTERS} printable characters, none invisible, no space at either end"
        raise _Bad(Reason.KEY_INVALID, f"the key {text[:_SHOWN]!r} cannot name a session: use {rule}")
    return text


def _items_of(value: bytes | None, wire: Wire[T]) -> list[Any]:
    if not value:
        raise _Bad(Reason.EMPTY_VALUE, "the record has no value: delete markers mean nothing on this topic")
    try:
        content = _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Bad(Reason.NOT_JSON, f"{error}: send a JSON object, or a list of them, in UTF-8") from None
    if isinstance(content, dict):
        return [content]
    if not isinstance(content, list):
        raise _Bad(wire.unlike, f"a JSON {_kind(content)}: send an object with named fields, or a list")
    if not content:
        raise _Bad(Reason.EMPTY_LIST, f"an empty list: send nothing when there is no {wire.noun}")
    if len(content) > MAX_BARS:
        detail = f"a list of {len(content)}: send at most {MAX_BARS} {wire.noun}s in a record"
        raise _Bad(Reason.LIST_TOO_LONG, detail)
    if not any(isinstance(item, dict) for item in content):
        detail = f"an array without field names: convert it to objects such as {wire.example}"
        raise _Bad(wire.unlike, detail)
    return content


def _fields_of(item: Any, key: str, wire: Wire[T]) -> dict[str, Any]:
    """The item's fields under their one name. Unknown fields are ignored: vendors send many."""
    if not isinstance(item, dict):
        raise _Bad(wire.unlike, f"a JSON {_kind(item)} inside the list: each item must be an object")
    aliases = _names_of(item, wire)
    fields: dict[str, Any] = {}
    for name, value in item.items():
        field = aliases.get(name)
        if field is None or value is None:
            continue
        kind = type(value)
        if kind is not str and (field == "symbol" or (kind is not int and kind is not float)):
            wanted = "text" if field == "symbol" else "a number, or a number as text"
            raise _Bad(Reason.WRONG_TYPE, f"{name} is a JSON {_kind(value)}: send {wanted}")
        if fields.setdefault(field, value) != value:
            raise _Bad(Reason.CONFLICT, f"two different values for {field}, one of them as {name}: send one")
    missing = [field for field in wire.required if field not in fields]
    if missing:
        names = (f"{field} ({'|'.join(a for a, f in aliases.items() if f == field)})" for field in missing)
        raise _Bad(Reason.MISSING_FIELD, f"no value for {'; '.join(names)}")
    for name in wire.rivals:
        rival = item.get(name)
        told = isinstance(rival, int | float) or (isinstance(rival, str) and any(map(str.isdecimal, rival)))
        if aliases is wire.aliases and told and rival != fields["time"]:
            raise _Bad(Reason.CONFLICT, f"{name} is a time other than the {wire.noun}'s own: send one of the two")
    symbol = fields.get("symbol", key)
    if symbol != key:
        symbol = symbol[:_SHOWN]
        detail = f"the key is {key!r} but the {wire.noun}'s symbol is {symbol!r}: they must be the same text"
        raise _Bad(Reason.SYMBOL_MISMATCH, detail)
    return fields


def _names_of(item: dict[str, Any], wire: Wire[T]) -> Mapping[str, str]:
    """The names that the item is written in: a vendor's own where it bears the vendor's mark."""
    shape = next((shape for shape in wire.shapes if shape.marks(item)), None)
    if shape is None:
        return wire.aliases
    if shape.names is None:
        raise _Bad(wire.unlike, f"a message of {shape.vendor} that is no {wire.noun}: send {wire.noun}s only")
    return shape.names


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "true/false", dict: "object", list: "array", str: "string"}.get(type(value), "number")


def _to_json(item: Any) -> bytes:
    """One item of a list as JSON again. The standard library writes integers of any size, as they came."""
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()
