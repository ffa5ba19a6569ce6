"""Records of an outer join that wait for one of the other side: the keys and values of its store.

    key    := timestamp:i64 is_left:u8 key:u8[..]
    value  := list [ headers ]
    list   := 01 count:i32 { size:i32 is_left:u8 value:u8[size - 1] }[count]
    headers := 01 count:i32 { size:i32 headers:u8[size] }[count]

All numbers are big-endian. A value holds the records of one key, timestamp and side, in the order in which they came.
Kafka Streams has the list alone, and reads past nothing that follows it: so the headers stand behind it, in KIP-1271's
encoding, one for each value, and only if one of the records has any. Without headers, the bytes are Kafka's.
Source: Kafka Streams' TimestampedKeyAndJoinSide, LeftOrRightValue and ListValueStore, its ListSerializer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.varint import take_bytes

WAITING_KEYS: Final = "waiting"  # what is recorded of the keys of such a store. Never rename.

_PLACE: Final = struct.Struct(">qB")
_COUNT: Final = struct.Struct(">Bi")
_SIZE: Final = struct.Struct(">i")
_VARIABLE_SIZE: Final = 1  # how the list is written: each value behind its size


class WaitingValue(NamedTuple):
    """A record that waits. `header_bytes` is in KIP-1271's encoding."""

    is_left: bool
    value: bytes
    header_bytes: bytes = b""


def encode_waiting_key(timestamp_ms: int, is_left: bool, key: bytes) -> bytes:
    """Return the key of the records of one timestamp, side and key: in order of time, right before left."""
    return _PLACE.pack(timestamp_ms, is_left) + key


def decode_waiting_key(data: bytes) -> tuple[int, bool, bytes]:
    """Return timestamp, whether it is of the left side, and key. Raises TruncatedError for what is too short."""
    if len(data) < _PLACE.size:
        raise TruncatedError("key of a waiting record", wanted=_PLACE.size, got=len(data))
    timestamp_ms, is_left = _PLACE.unpack_from(data)
    return timestamp_ms, is_left == 1, data[_PLACE.size :]


def waiting_key(data: bytes) -> bytes:
    """Return the key of the records that a key of the store is of. Raises likewise."""
    return decode_waiting_key(data)[2]


def encode_waiting_values(waiting: Sequence[WaitingValue]) -> bytes:
    """Return the bytes of records that wait, in their order."""
    values = _encode_list([bytes((held.is_left,)) + held.value for held in waiting])
    if not any(held.header_bytes for held in waiting):
        return values
    return values + _encode_list([held.header_bytes for held in waiting])


def decode_waiting_values(data: bytes) -> list[WaitingValue]:
    """Return the records that wait. Raises FormatError for bytes of another layout."""
    entries, end = _decode_list(data, 0)
    headers = [b""] * len(entries) if end == len(data) else _decode_list(data, end)[0]
    if len(headers) != len(entries):
        raise FormatError("waiting records", f"there are {len(entries)} of them, and the headers of {len(headers)}")
    waiting = []
    for entry, header_bytes in zip(entries, headers, strict=True):
        if not entry:
            raise TruncatedError("waiting record", wanted=1, got=0)
        waiting.append(WaitingValue(entry[0] == 1, entry[1:], header_bytes))
    return waiting


def _encode_list(entries: Sequence[bytes]) -> bytes:
    parts = [_COUNT.pack(_VARIABLE_SIZE, len(entries))]
    for entry in entries:
        parts += (_SIZE.pack(len(entry)), entry)
    return b"".join(parts)


def _decode_list(data: bytes, start: int) -> tuple[list[bytes], int]:
    at = start + _COUNT.size
    if at > len(data):
        raise TruncatedError("list of waiting records", wanted=_COUNT.size, got=len(data) - start)
    strategy, count = _COUNT.unpack_from(data, start)
    if strategy != _VARIABLE_SIZE:
        raise FormatError("list of waiting records", f"is written in way {strategy}, not {_VARIABLE_SIZE}")
    if count < 0:
        raise NegativeLengthError("list of waiting records", length=count)
    if count * _SIZE.size > len(data) - at:
        raise TruncatedError("list of waiting records", wanted=count * _SIZE.size, got=len(data) - at)
    entries = []
    for _ in range(count):
        encoded, at = take_bytes(data, at, _SIZE.size, "waiting record")
        (size,) = _SIZE.unpack(encoded)
        if size < 0:
            raise NegativeLengthError("waiting record", length=size)
        entry, at = take_bytes(data, at, size, "waiting record")
        entries.append(entry)
    return entries, at
