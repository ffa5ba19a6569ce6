"""Positions: which input offsets a store has taken in, as Kafka Streams keeps them in a store's database.

    position  := version:u8 = 0  count:i32_be topic[count] padding:u8[..]
    topic     := size:i32_be name:utf8[size] count:i32_be partition[count]
    partition := number:i32_be offset:i64_be

The padding is zeros: Kafka Streams adds up the sizes of the fields in bits (those of names in bytes) and takes the sum
for bytes. Readers need not find it there. Beside the position stand numbers of 64 bits: the changelog's offset, and
whether the database is open. Source: PositionSerde of Kafka Streams.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError

Position = dict[str, dict[int, int]]  # the offset that was taken in last, by topic and partition

OFFSET_UNKNOWN: Final = -4  # stands for the changelog's offset where none is known

_VERSION: Final = 0
_WHAT: Final = "position"
_BITS: Final = 8
_COUNT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_PARTITION: Final = struct.Struct(">iq")


def encode_position(position: Mapping[str, Mapping[int, int]]) -> bytes:
    """Return a position as Kafka Streams writes it, with padding. Raises ValueError for numbers out of range."""
    parts = [bytes([_VERSION]), _COUNT.pack(len(position))]
    size = _BITS * (1 + _COUNT.size)
    for topic, offsets in position.items():
        name = topic.encode()
        parts += [_COUNT.pack(len(name)), name, _COUNT.pack(len(offsets))]
        size += _BITS * 2 * _COUNT.size + len(name) + _BITS * _PARTITION.size * len(offsets)
        for partition, offset in offsets.items():
            try:
                parts.append(_PARTITION.pack(partition, offset))
            except struct.error as cause:
                raise ValueError(f"not a partition and an offset of {topic!r}: {partition!r}, {offset!r}") from cause
    return b"".join(parts).ljust(size, b"\0")


def decode_position(data: bytes) -> Position:
    """Return the position in `data`, padded or not. Raises FormatError if it does not follow the layout."""
    if not data:
        raise TruncatedError(_WHAT, wanted=1, got=0)
    if data[0] != _VERSION:
        raise FormatError(_WHAT, f"version {data[0]} is unknown; this release reads version {_VERSION}")
    position: Position = {}
    # The least that a topic takes is the length of its name and its number of partitions.
    count, at = _read_count(data, 1, item_size=2 * _COUNT.size)
    for _ in range(count):
        size, at = _read_count(data, at, item_size=1)
        try:
            topic = data[at : at + size].decode()
        except UnicodeDecodeError as cause:
            raise FormatError(_WHAT, f"a topic's name is not UTF-8: {data[at : at + size].hex()}") from cause
        partitions, at = _read_count(data, at + size, item_size=_PARTITION.size)
        end = at + partitions * _PARTITION.size
        position[topic] = dict(_PARTITION.iter_unpack(data[at:end]))
        at = end
    return position


def merge_positions(one: Mapping[str, Mapping[int, int]], other: Mapping[str, Mapping[int, int]]) -> Position:
    """Return what both have taken in together: of each partition the greater offset."""
    merged: Position = {topic: dict(offsets) for topic, offsets in one.items()}
    for topic, offsets in other.items():
        known = merged.setdefault(topic, {})
        for partition, offset in offsets.items():
            known[partition] = max(offset, known.get(partition, offset))
    return merged


def encode_long(number: int) -> bytes:
    """Return an offset or a status in its 8 bytes."""
    return _LONG.pack(number)


def decode_long(what: str, data: bytes) -> int:
    """Return the number in 8 bytes; `what` says what it is of. Raises FormatError if they are not 8."""
    if len(data) < _LONG.size:
        raise TruncatedError(what, wanted=_LONG.size, got=len(data))
    if len(data) > _LONG.size:
        raise FormatError(what, f"has {len(data)} bytes, and should have {_LONG.size}")
    return int(_LONG.unpack(data)[0])


def _read_count(data: bytes, at: int, *, item_size: int) -> tuple[int, int]:
    """Return the count at `at`, and where what it counts begins; there is room for that many items."""
    begin = at + _COUNT.size
    if begin > len(data):
        raise TruncatedError(_WHAT, wanted=_COUNT.size, got=max(0, len(data) - at))
    count = int(_COUNT.unpack_from(data, at)[0])
    if count < 0:
        raise NegativeLengthError(_WHAT, length=count)
    if count * item_size > len(data) - begin:
        raise TruncatedError(_WHAT, wanted=count * item_size, got=len(data) - begin)
    return count, begin
