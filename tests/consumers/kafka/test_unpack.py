"""Batches of every codec, unpacked as kafka-python does, and no further than a bound."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import kafka.codec as codec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from consumers.kafka import unpack as module
from consumers.kafka.salvage import SalvagingRecords
from consumers.kafka.unpack import UnpacksTooLarge, unpack

PACK: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, codec.gzip_encode),
    "gzip in parts": (1, lambda data: gzip.compress(data[:7], mtime=0) + gzip.compress(data[7:], mtime=0)),
    "snappy of Java": (2, codec.snappy_encode),
    "snappy": (2, lambda data: codec.snappy_encode(data, xerial_compatible=False)),
    "lz4": (3, codec.lz4_encode),
    "zstd": (4, codec.zstd_encode),
    "zstd in parts": (4, lambda data: codec.zstd_encode(data[:7]) + codec.zstd_encode(data[7:])),
}
each = pytest.mark.parametrize("name", PACK)


@each
@pytest.mark.parametrize("size", [1, 7, 8, 100_000])
def test_what_was_packed_comes_out(name: str, size: int) -> None:
    number, pack = PACK[name]
    data = bytes(n * n % 251 for n in range(size))
    assert unpack(number, pack(data)) == data


@each
def test_the_bound_is_the_last_that_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number, pack = PACK[name]
    data = b"0123456789" * 20_000
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", len(data))
    assert unpack(number, pack(data)) == data
    with pytest.raises(UnpacksTooLarge, match="unpack to more than 200000"):
        unpack(number, pack(data + b"x"))


@each
def test_no_more_than_the_bound_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts that kafka-python's functions would make are counted where the libraries give them out."""
    number, pack = PACK[name]
    packed = pack(bytes(50_000_000))
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 1_000)
    monkeypatch.setattr(module, "snappy_decode", lambda _: pytest.fail("it is known to be too large"))
    made: list[int] = []
    whole = module._UNPACK[number]

    def counted(data: bytes, most: int) -> bytes:
        unpacked = whole(data, most)
        made.append(len(unpacked))
        return unpacked

    monkeypatch.setitem(module._UNPACK, number, counted)
    with pytest.raises(UnpacksTooLarge):
        unpack(number, packed)
    assert made == ([] if number == 2 else [1_001])


@pytest.mark.parametrize("name", ["gzip", "lz4"])
def test_what_ends_too_early_is_no_shorter_batch(name: str) -> None:
    """Of the others kafka-python says so as well, or finds it by the records, which say how many they are."""
    number, pack = PACK[name]
    packed = pack(bytes(n * n % 251 for n in range(10_000)))
    with pytest.raises(ValueError, match="ends too early"):
        unpack(number, packed[: len(packed) // 2])


@given(st.sampled_from(sorted(PACK)), st.binary(max_size=200))
def test_bytes_of_no_codec_end_in_an_error_or_in_bytes(name: str, rubbish: bytes) -> None:
    number, pack = PACK[name]
    for packed in (rubbish, pack(b"x" * 50)[:20] + rubbish):
        try:
            unpacked = unpack(number, packed)
        except Exception:  # the caller passes whatever it is: see CarefulConsumer
            continue
        assert isinstance(unpacked, bytes)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_batch_that_unpacks_to_too_much_is_refused_as_it_is_read(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=number, batch_size=10_000_000)
    for n in range(3):
        builder.append(timestamp=1, key=b"A", value=bytes(2_000) + bytes([n]))
    builder.close()
    log = bytes(builder.buffer())
    records = [record.value[-1] for record in SalvagingRecords(log).next_batch()]
    assert records == [0, 1, 2]
    monkeypatch.setattr(module, "MAX_UNPACKED_BYTES", 6_000)
    with pytest.raises(UnpacksTooLarge):
        list(SalvagingRecords(log).next_batch())
