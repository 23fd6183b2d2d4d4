"""Names of a file's columns, as vendors write them, and how the file writes its numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from consumers.files.times import FeedError

PRICES = ("open", "high", "low", "close")

_NAMES: Mapping[str, Sequence[str]] = {
    "open": ("open", "o", "first", "eröffnung", "erster"),
    "high": ("high", "h", "hoch"),
    "low": ("low", "l", "tief"),
    "close": ("close", "c", "close/last", "schluss", "schlusskurs", "last", "latest", "price"),
    "volume": ("volume", "v", "vol", "stuecke", "stücke", "umsatz", "tickvol", "tick volume"),
    "symbol": ("symbol", "sym", "s", "ticker", "pair", "instrument"),
    "time": (
        "ts", "t", "timestamp", "time", "date", "datetime", "date time", "open time", "gmt time", "local time",
        "unix", "datum", "dtyyyymmdd", "begins at", "bar time", "start", "start time",
    ),
}  # fmt: skip
"""The first that a file has is taken, but for times, which may be two; one letter is told by its case as well."""
_FIELDS = {name: field for field, names in _NAMES.items() for name in names}
_DECIMAL_COMMA = re.compile(r"-?(?:\d+|\d{1,3}(?:\.\d{3})+)(?:,\d+[KMB]?|(?<=\.\d{3}))")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?[KMB]?")
_INDEX = re.compile(r"|index|unnamed: 0")
_NO_ZONE = re.compile(r"|utc|gmt|z|unix.*|epoch.*|iso.*|[num]?s|.*(yy|mm|dd).*")
"""What stands in brackets behind a time's name and is no other zone."""
_UNIT = re.compile(r"(.*?)\s*\((.*)\)|(volume) (\w+)")


def field_of(name: str) -> str | None:
    """The field that a column's name means. One letter is exact: Binance's ``t`` opens a bar, ``T`` closes it."""
    if len(name.strip()) == 1:
        return "symbol" if name == "S" else _FIELDS.get(name)
    return _FIELDS.get(_plain(name)[0])


def columns_of(names: Sequence[str]) -> dict[str, list[str]]:
    """The columns that may be each field, the one to prefer first."""
    found: dict[str, list[str]] = {}
    for name in names:
        if (field := field_of(name)) is not None:
            found.setdefault(field, []).append(name)
    for field, columns in found.items():
        columns.sort(key=lambda name: _NAMES[field].index(_plain(name)[0]) if name != "S" else 0)
    if "time" not in found and names and _INDEX.fullmatch(names[0].strip().lower()):
        found["time"] = [names[0]]  # an index, as pandas writes it
    return found


def check_zone(name: str, values: Iterable[Any]) -> None:
    """Raises FeedError where a header says that its clocks are of a place, and the values do not say their
    offset."""
    plain, unit = _plain(name)
    zone = "local" if plain == "local time" else unit
    bare = any(re.search(r"[+-]\d{2}:?\d{2}$|Z$", str(value).strip()) is None for value in values)
    if bare and not _NO_ZONE.fullmatch(zone):
        raise FeedError(
            f"the column {name!r} is of the time zone {zone!r}: write its times in UTC, or with their offsets"
        )


def volume_of(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], symbol: str) -> str | None:
    """Which column is the volume: of several units that in which the symbol is counted, and what is not empty."""
    units = {name: _plain(name)[1].lower() for name in columns}
    if any(units.values()) and len(columns) > 1:
        return next((name for name, unit in units.items() if unit and symbol.lower().startswith(unit)), None)
    filled = (name for name in columns if any(row.get(name) not in (None, "", "0", 0) for row in rows))
    return next(filled, columns[0] if columns else None)


def number_reader(texts: Iterable[str], name: str) -> Any:
    """A function from a value to its number, or to the value as it is where it is none.

    A comma is a decimal point or a separator of thousands: the file's numbers say which. Raises FeedError where
    they do not."""
    comma = _comma(set(texts), name)

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = _bare(value)
        if not text:
            return None
        if comma is _DECIMAL_COMMA and comma.fullmatch(text):
            text = text.replace(".", "").replace(",", ".")
        elif comma is _THOUSANDS and comma.fullmatch(text):
            text = text.replace(",", "")
        scale = {"K": 1e3, "M": 1e6, "B": 1e9}.get(text[-1:], 1.0)
        try:
            number = float(text[:-1] if scale != 1.0 else text)
            number = number if scale == 1.0 else round(number * scale, 6)
        except ValueError:
            return value
        return number if math.isfinite(number) else value  # JSON has no NaN: the text shows what the file holds

    return read


def _comma(texts: set[str], name: str) -> re.Pattern[str] | None:
    """How the numbers with a comma are written; None where there are none."""
    numbers = [text for text in map(_bare, texts) if "," in text or text.count(".") > 1]
    # "1,234" is of both forms; what is of neither is no number, and decides nothing.
    as_decimal, as_thousands = _DECIMAL_COMMA.fullmatch, _THOUSANDS.fullmatch
    decimal = next((number for number in numbers if as_decimal(number) and not as_thousands(number)), "")
    thousands = next((number for number in numbers if as_thousands(number) and not as_decimal(number)), "")
    if decimal and thousands:
        raise FeedError(f"{name}: the comma is a decimal point in {decimal!r} and separates in {thousands!r}")
    either = next((number for number in numbers if as_decimal(number) and as_thousands(number)), "")
    if either and not decimal and not thousands:
        raise FeedError(
            f"{name}: {either!r} may be thousands or a decimal comma, and no number of the file tells which: "
            "write decimal points and no separators"
        )
    return _DECIMAL_COMMA if decimal else _THOUSANDS if thousands else None


def _bare(text: str) -> str:
    """Without what stands around a number or groups its digits, other than a comma or a point."""
    text = text.strip().lstrip("$€£¥").rstrip("$€£¥%").strip()
    return re.sub(r"(?<=\d)['\u2019 \u00a0\u202f](?=\d{3})", "", text)


def _plain(name: str) -> tuple[str, str]:
    """A column's name as it is looked up, and the unit that it names: ``Volume (BTC)``, ``Volume USD``."""
    word = re.sub(r"[\s_]+", " ", name.strip().strip("<>*").strip().rstrip(".").lower())
    if match := _UNIT.fullmatch(word):
        return (match[1] or match[3]), (match[2] or match[4])
    return word, ""
