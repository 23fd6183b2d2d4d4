"""A raw record, the reasons for which one is not taken, and the dead letter that says so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a record or a bar is in the dead-letter topic (its ``reason`` header)."""

    UNREADABLE = "unreadable"
    KEY_MISSING = "key_missing"
    KEY_INVALID = "key_invalid"
    EMPTY_VALUE = "empty_value"
    NOT_JSON = "not_json"
    NOT_A_BAR = "not_a_bar"
    NOT_A_TRADE = "not_a_trade"
    EMPTY_LIST = "empty_list"
    LIST_TOO_LONG = "list_too_long"
    WRONG_TYPE = "wrong_type"
    CONFLICT = "conflicting_fields"
    MISSING_FIELD = "missing_field"
    SYMBOL_MISMATCH = "symbol_mismatch"
    NOT_A_NUMBER = "not_a_number"
    NOT_FINITE = "not_finite"
    HIGH_BELOW_LOW = "high_below_low"
    OUTSIDE_RANGE = "outside_range"
    NEGATIVE_VOLUME = "negative_volume"
    TIME_INVALID = "time_invalid"
    TIME_IN_FUTURE = "time_in_future"
    LATE = "late"
    SECOND_SOURCE = "second_source"
    NOT_A_STANDING_QUERY = "not_a_standing_query"
    QUESTION_NOT_SUPPORTED = "question_not_supported"


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A Kafka record as polled. ``timestamp_ms`` is milliseconds since the epoch, -1 where the broker has none.
    ``fault`` is why it could not be read: ``value`` is then what there is of it, of a whole batch perhaps."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that was not taken, or one bar of it: ``bar`` is the index in its list, None for the whole record.

    ``value`` is the record's bytes as they came, or the JSON of the one bad bar."""

    raw: RawRecord
    value: bytes | None
    reason: str
    detail: str
    bar: int | None = None
