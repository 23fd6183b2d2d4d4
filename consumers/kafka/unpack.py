"""Compressed batches unpacked up to a bound: a megabyte on the wire may stand for gigabytes of zeros.

kafka-python 3.0.12 unpacks a batch whole, whatever it holds; the process would be killed for its memory, and again
after each restart.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from io import BytesIO

import lz4.frame  # type: ignore[import-untyped]
import zstandard
from kafka.codec import snappy_decode

MAX_UNPACKED_BYTES = 128 * 2**20
"""Of one batch. A producer sends about a megabyte at most, unless it is told otherwise."""

_XERIAL = b"\x82SNAPPY\x00"
"""How Java's snappy stream begins, which has its blocks behind 16 bytes; other clients send one block."""


class UnpacksTooLarge(ValueError):
    """A compressed batch holds more than it may."""

    def __init__(self, packed: bytes) -> None:
        super().__init__(f"{len(packed)} bytes unpack to more than {MAX_UNPACKED_BYTES}")


def _gzip(packed: bytes, most: int) -> bytes:
    unpacked = bytearray()
    while packed and len(unpacked) < most:
        member = zlib.decompressobj(wbits=31)
        unpacked += member.decompress(packed, most - len(unpacked))
        if len(unpacked) < most and not member.eof:
            raise ValueError("the gzip stream ends too early")
        packed = member.unused_data
    return bytes(unpacked)


def _lz4(packed: bytes, most: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    unpacked: bytes = frame.decompress(packed, max_length=most)
    if len(unpacked) < most and not frame.eof:
        raise ValueError("the lz4 frame ends too early")
    return unpacked


def _zstd(packed: bytes, most: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(BytesIO(packed), read_across_frames=True) as reader:
        return reader.read(most)


def _snappy(packed: bytes, most: int) -> bytes:
    """Blocks say at their beginning what they unpack to, and no more is made of them."""
    at, size = (16, 0) if packed.startswith(_XERIAL) else (-1, _snappy_length(packed))
    while 0 <= at < len(packed) and size < most:
        (length,) = struct.unpack_from(">i", packed, at)
        if length <= 0:
            raise ValueError("a block of snappy without a length")
        size += _snappy_length(packed[at + 4 : at + 14])
        at += 4 + length
    if size >= most:
        raise UnpacksTooLarge(packed)
    unpacked: bytes = snappy_decode(packed)
    return unpacked


def _snappy_length(block: bytes) -> int:
    """The varint in front of a block."""
    length = 0
    for place, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return length
    raise ValueError("a block of snappy without its length")


_UNPACK: dict[int, Callable[[bytes, int], bytes]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
"""By the codec's number in a batch's attributes."""


def unpack(codec: int, packed: bytes) -> bytes:
    """Raises UnpacksTooLarge, and whatever the codec does of bytes that are not its own."""
    unpacked = _UNPACK[codec](packed, MAX_UNPACKED_BYTES + 1)
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise UnpacksTooLarge(packed)
    return unpacked
