"""The ready board's file: where everything lies, and what both sides agree on.

    header | two META banks | partition table | epoch table | slots

All control fields are 8-byte words at 8-byte offsets, accessed through ``memoryview.cast("Q")``: CPython
reads and writes such an item with one fixed-size 8-byte copy, which x86-64 and arm64 carry out as a single
access, so no reader sees half a word. Order: x86-64 keeps a process's stores, and its loads, in program
order. arm64 may not; there a copy that mixes old and new fails the checksum, and a slot that becomes
visible before or after its epoch word only fails to match it. Both are misses, never wrong answers.

A slot has two *banks*; the one in use is the session's epoch modulo 2. The next state is written into the
other bank while the current one is still served, and one store to the session's epoch word swaps all slots
of the session at once. A slot is valid only while the epoch inside the bank equals the epoch word.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from stream_engine.decision.calibration import Knots
from stream_engine.decision.gate import ClassGate, FastAnswer
from stream_engine.decision.ready import Evidence, ReadyDistribution

MAGIC = b"READYBRD"
LAYOUT_VERSION = 2

# Word numbers in the header (byte offset / 8). Words 2 and 3 hold the 16 bytes of the boot id.
W_MAGIC, W_LAYOUT, W_BOOT = 0, 1, 2
W_PID, W_CREATED_NS, W_HEARTBEAT_NS, W_LEASE_NS = 4, 5, 6, 7
W_SESSIONS, W_SLOT_LIMIT, W_WORKERS, W_PARTITIONS = 8, 9, 10, 11
W_USED_SLOTS, W_META_VERSION = 12, 13
HEADER_BYTES = 128

HEARTBEAT_DEAD = 1 << 63
"""A heartbeat from the future: no clock reading makes it young enough."""

READ_BITS = 20
READ_MASK = (1 << READ_BITS) - 1
"""A consumed word is the generation that its owner read and, in the low bits, how often; the count stops at the
most that they hold."""

META_CAPACITY = 65_536
META_HEAD = struct.Struct("=II")  # length, crc32
META_BANK_BYTES = META_HEAD.size + META_CAPACITY

PARTITION_ROW_BYTES = 16  # key word ((topic index + 1) << 32 | partition; 0 = free), next offset

KEY_BYTES = 16
EMPTY_KEY = bytes(KEY_BYTES)
TOMBSTONE_KEY = b"\xff" * KEY_BYTES
SLOT_HEAD_BYTES = 32  # key, session index, unused

PAYLOAD = struct.Struct("=16s QQq IIii dddd iiqqqq IIQ")
"""key; session epoch, generation, session version; session index, position, top1, top2; gap, top1 logit,
log partition, fast-set mass; topic index, partition, offset, event us, record ms, ready ms; bars, flags,
token hash."""
CHECKSUM = struct.Struct("=Q")  # crc32 of the payload
SEQUENCE_BYTES = 8
BANK_BYTES = SEQUENCE_BYTES + PAYLOAD.size + CHECKSUM.size


class BoardError(ValueError):
    """The board cannot be created or used as asked; the message says what to change."""


class BoardMeta(msgspec.Struct, frozen=True):
    """What a reader needs to turn slots into answers; rewritten whole when something in it changes.

    ``topics`` is the list that topic indexes count in; ``answers`` maps a token id to its fast answer;
    ``generic_class`` is the class that the generic header answers; ``noise`` is the gate's float noise;
    ``confidence`` is the calibrated curve of each class that has one.
    """

    topics: tuple[str, ...]
    model: str
    profile_digest: str
    calibration_digest: str
    window_bars: int
    classes: dict[str, ClassGate]
    answers: dict[int, FastAnswer]
    generic_class: str
    noise: float
    confidence: dict[str, Knots] = {}


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """One decision point to put on the board. ``entry_key`` is "" for the generic header, the normalised
    question text for a standing query; ``token_hash`` is 64 bits of a hash of the token sequence up to the
    decision point; ``ready_time_ms`` is when it was computed, since the Unix epoch."""

    entry_key: str
    ready: ReadyDistribution
    evidence: Evidence
    token_hash: int
    ready_time_ms: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """Offsets in bytes, derived from the four sizes that the header names."""

    max_sessions: int
    slot_limit: int
    max_workers: int
    max_partitions: int

    def __post_init__(self) -> None:
        for name in ("max_sessions", "slot_limit", "max_workers", "max_partitions"):
            if getattr(self, name) < 1:
                raise BoardError(f"{name} = {getattr(self, name)}: must be positive")

    @property
    def table_slots(self) -> int:
        """Length of the open-addressing table: a power of two, at least half as long again as the limit."""
        return 1 << (self.slot_limit + (self.slot_limit + 1) // 2 - 1).bit_length()

    @property
    def partition_base(self) -> int:
        return HEADER_BYTES + 2 * META_BANK_BYTES

    @property
    def epoch_base(self) -> int:
        return self.partition_base + PARTITION_ROW_BYTES * self.max_partitions

    @property
    def slot_base(self) -> int:
        return -(-(self.epoch_base + 8 * self.max_sessions) // 64) * 64

    @property
    def consumers(self) -> int:
        """Consumed words of a bank: one per API worker, and the engine's own behind them."""
        return self.max_workers + 1

    @property
    def consumed_offset(self) -> int:
        """Of the first consumed word, from the slot's start."""
        return SLOT_HEAD_BYTES + 2 * BANK_BYTES

    @property
    def slot_bytes(self) -> int:
        return -(-(self.consumed_offset + 2 * 8 * self.consumers) // 64) * 64

    @property
    def file_bytes(self) -> int:
        return self.slot_base + self.slot_bytes * self.table_slots

    def consumed_word(self, cell: int) -> int:
        """Word number of the first consumed word of a cell (slot * 2 + bank)."""
        slot, bank = divmod(cell, 2)
        start = self.slot_base + slot * self.slot_bytes + self.consumed_offset
        return start // 8 + bank * self.consumers


def meta_offset(version: int) -> int:
    """Byte offset of the META bank that holds ``version``."""
    return HEADER_BYTES + (version & 1) * META_BANK_BYTES


def slot_key(session_id: str, entry_key: str) -> bytes:
    """128-bit hash of (session, entry). The length in front keeps ("a", "bc") and ("ab", "c") apart."""
    text = f"{len(session_id)}:{session_id}{entry_key}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=KEY_BYTES).digest()


def home_slot(key: bytes, mask: int) -> int:
    """Where probing for ``key`` starts."""
    return int.from_bytes(key[:8], "little") & mask


def read_once_more(word: int, generation: int) -> int:
    """A consumed word after one more read of ``generation``."""
    return generation << READ_BITS | min(reads_of(word, generation) + 1, READ_MASK)


def reads_of(word: int, generation: int) -> int:
    """Reads of ``generation`` that a consumed word tells of."""
    return word & READ_MASK if word >> READ_BITS == generation else 0


def partition_key(topic_index: int, partition: int) -> int:
    """The partition table's key word; never 0."""
    if not (0 <= topic_index < (1 << 32) - 1 and 0 <= partition < 1 << 32):
        raise BoardError(f"topic index {topic_index}, partition {partition}: not 32-bit numbers")
    return (topic_index + 1) << 32 | partition
