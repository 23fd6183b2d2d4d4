"""Bounds of what other processes and topics may say: a message that breaks one is refused as it is decoded.

They hold for decoded messages; what is made in this process is checked where it came in. A bound is what the field
can ever be, not what is usual: whoever meets one has a fault, or means harm.
"""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from msgspec import Meta

MAX_ID = 256
"""Characters of a session id, a pattern or a standing query's id."""
MAX_QUESTION = 4096
"""Characters of a question."""
MAX_TEXT = 16_384
"""Characters of any other text: an error's message, a detail."""
MAX_BARS = 65_536
"""Bars of one record or window: a region holds hundreds."""
MAX_TOPICS, MAX_PARTITIONS, MAX_COUNTERS = 16, 100_000, 1_000
"""Of a consumer's report."""
MAX_PAGE = 100
"""Sessions of one reply: what more a page has is asked for again, so that the engine steps in between."""
MAX_PATTERNS = 64
"""Patterns of what a key may see."""
MAX_CLASSES = 256
"""Question classes of a gate."""
MAX_ITEMS = 1_000_000
"""Entries of any other list: bars of a batch, sessions, answers."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding bytes of others raises: not the format, not the type or out of bounds, not UTF-8, nested deeper
than the decoder goes."""

MAX_FLOAT = sys.float_info.max

Finite = Annotated[float, Meta(ge=-MAX_FLOAT, le=MAX_FLOAT)]
NotNegative = Annotated[float, Meta(ge=0.0, le=MAX_FLOAT)]
Positive = Annotated[float, Meta(gt=0.0, le=MAX_FLOAT)]
Unit = Annotated[float, Meta(ge=1e-300, le=1e300)]
"""Of prices: a level counted in it is a number, whatever the price."""
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 2)]
"""The version, which is one more, is 64 bits with a sign on the board."""
OffsetBefore = Annotated[int, Meta(ge=-1, le=2**63 - 2)]
"""That of the last record before another one; -1 before the first."""
PartitionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TimestampMs = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Of a Kafka record, as whoever produced it has set it; -1 without one."""
TimeUs = Annotated[int, Meta(ge=-26_000 * 86_400_000_000, le=85_000 * 86_400_000_000)]
"""Of a bar: 1900 to 2200, as records are taken, and room for the bar's length."""
ClockMs = Annotated[int, Meta(ge=0, le=85_000 * 86_400_000)]
"""Of a process's own clock."""
Gap = Annotated[float, Meta(ge=0.0, le=1e30)]
"""Between two logits."""
Hash = Annotated[int, Meta(ge=0)]
"""64 bits without a sign, which is what a message can carry at most."""
Topic = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,249}\Z")]
"""A legal name of a Kafka topic."""
PartitionName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,249}/[0-9]{1,10}\Z")]
"""``topic/partition``."""
CounterName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,120}_total\Z")]
"""A metric's name without its prefix."""
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
Question = Annotated[str, Meta(min_length=1, max_length=MAX_QUESTION)]
Name = Annotated[str, Meta(max_length=MAX_ID)]
"""A class, an answer, a token, a boot id."""
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Notice = Annotated[str, Meta(max_length=2 * MAX_TEXT)]
"""A text with another one in it."""
PeerName = Annotated[str, Meta(pattern=r"^[0-9a-f]{2,510}\Z")]
"""A socket's identity, of at most 255 bytes, in hexadecimal digits."""
Metrics = Annotated[dict[Name, Finite], Meta(max_length=MAX_COUNTERS)]
"""Values by the metric's name."""
