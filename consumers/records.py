"""Wire format to bars: raw Kafka records in, good records and dead letters out.

A value is JSON: one bar (an object) or a list of bars. Field names are matched through ``ALIASES``; numbers may
be strings; the symbol may be left to the record's key. A whole poll is parsed at once: JSON and field names here,
numbers, times and rules as columns in ``consumers.columns``. Nothing is dropped: every bar of every record comes
back either good or as a dead letter with a reason and a sentence that says what to do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from consumers.columns import BarColumns, validate
from consumers.reasons import DeadLetter, RawRecord, Reason
from stream_engine.messages import Bar, Record

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

    ``bars_seen`` = good bars + dead-lettered bars; a record that holds no bar at all counts as one dead letter."""

    raw: RawRecord
    record: Record | None
    dead: tuple[DeadLetter, ...]
    bars_seen: int


class _Bad(Exception):
    """One bar or record that cannot be taken; carried to the dead letter."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def parse_records(raws: Sequence[RawRecord]) -> list[ParsedRecord]:
    """Parse a poll's records; the result is aligned with ``raws``. Never raises for what a record holds."""
    columns = BarColumns()
    owners: list[tuple[int, int, Any]] = []  # (record, bar within it, the bar as received), one per row of columns
    keys: list[str] = []
    seen = [0] * len(raws)
    dead: list[list[DeadLetter]] = [[] for _ in raws]
    for index, raw in enumerate(raws):
        try:
            key = _key_of(raw.key)
            bars = _bars_of(raw.value)
        except _Bad as bad:
            keys.append("")
            seen[index] = 1
            dead[index].append(DeadLetter(raw, raw.value, bad.reason, bad.detail))
            continue
        keys.append(key)
        seen[index] = len(bars)
        for position, bar in enumerate(bars):
            try:
                columns.append(_fields_of(bar, key), raw.timestamp_ms)
                owners.append((index, position, bar))
            except _Bad as bad:
                dead[index].append(DeadLetter(raw, _to_json(bar), bad.reason, bad.detail, position))

    good: list[list[Bar]] = [[] for _ in raws]
    for (index, position, bar), checked in zip(owners, validate(columns), strict=True):
        if isinstance(checked, Bar):
            good[index].append(checked)
        else:
            reason, detail = checked
            dead[index].append(DeadLetter(raws[index], _to_json(bar), reason, detail, position))

    parsed = []
    for index, raw in enumerate(raws):
        if len(good[index]) + len(dead[index]) != seen[index]:
            raise RuntimeError(f"offset {raw.offset}: {seen[index]} bars in, but not as many out")
        record = None
        if good[index]:
            in_order = sorted(good[index], key=lambda bar: bar.time_us)
            record = Record(keys[index], raw.offset, raw.timestamp_ms, tuple(in_order))
        parsed.append(ParsedRecord(raw, record, _whole(raw, dead[index], seen[index]), seen[index]))
    return parsed


def _whole(raw: RawRecord, dead: list[DeadLetter], seen: int) -> tuple[DeadLetter, ...]:
    """Dead letters in bar order; a record whose only bar is bad keeps its bytes as they came."""
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
        rule = f"at most {MAX_KEY_CHARACTERS} printable characters, no space at either end"
        raise _Bad(Reason.KEY_INVALID, f"the key {text[:_SHOWN]!r} cannot name a session: use {rule}")
    return text


def _bars_of(value: bytes | None) -> list[Any]:
    if not value:
        raise _Bad(Reason.EMPTY_VALUE, "the record has no value: delete markers mean nothing on this topic")
    try:
        content = _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Bad(Reason.NOT_JSON, f"{error}: send a JSON object, or a list of them, in UTF-8") from None
    if isinstance(content, dict):
        return [content]
    if not isinstance(content, list):
        raise _Bad(Reason.NOT_A_BAR, f"a JSON {_kind(content)}: send an object with named fields, or a list")
    if not content:
        raise _Bad(Reason.EMPTY_LIST, "an empty list: send nothing when there is no bar")
    if not any(isinstance(bar, dict) for bar in content):
        raise _Bad(Reason.NOT_A_BAR, 'an array without field names: convert it to objects such as {"open": ...}')
    return content


def _fields_of(bar: Any, key: str) -> dict[str, Any]:
    """The bar's fields under their one name. Unknown fields are ignored: vendors send many."""
    if not isinstance(bar, dict):
        raise _Bad(Reason.NOT_A_BAR, f"a JSON {_kind(bar)} inside the list: each item must be an object")
    fields: dict[str, Any] = {}
    for name, value in bar.items():
        field = ALIASES.get(name)
        if field is None or value is None:
            continue
        kind = type(value)
        if kind is not str and (field == "symbol" or (kind is not int and kind is not float)):
            wanted = "text" if field == "symbol" else "a number, or a number as text"
            raise _Bad(Reason.WRONG_TYPE, f"{name} is a JSON {_kind(value)}: send {wanted}")
        if fields.setdefault(field, value) != value:
            raise _Bad(Reason.CONFLICT, f"two different values for {field}, one of them as {name}: send one")
    missing = [field for field in REQUIRED if field not in fields]
    if missing:
        names = (f"{field} ({'|'.join(a for a, f in ALIASES.items() if f == field)})" for field in missing)
        raise _Bad(Reason.MISSING_FIELD, f"no value for {'; '.join(names)}")
    symbol = fields.get("symbol", key)
    if symbol != key:
        detail = f"the key is {key!r} but the bar's symbol is {symbol[:_SHOWN]!r}: they must be the same text"
        raise _Bad(Reason.SYMBOL_MISMATCH, detail)
    return fields


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "true/false", dict: "object", list: "array", str: "string"}.get(type(value), "number")


def _to_json(bar: Any) -> bytes:
    """One bar of a list as JSON again. The standard library writes integers of any size, as they came."""
    return json.dumps(bar, ensure_ascii=False, separators=(",", ":")).encode()
