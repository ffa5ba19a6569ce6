"""Varint: a signed 32-bit integer in one to five bytes; and its relatives, of 64 bits and without a sign.

    varint  := the zigzag code of value:i32 in groups of 7 bits, lowest first; a high bit says that a group follows
    varlong := the same of value:i64, in one to ten bytes
    uvarint := value:u32 in such groups, without zigzag, in one to five bytes

Zigzag keeps small numbers of either sign short: 0 -> 00, -1 -> 01, 1 -> 02, 63 -> 7e, 64 -> 8001.
Source: Kafka's ByteUtils.writeVarint, writeVarlong, writeUnsignedVarint and their readers. As in Kafka, a longer
encoding than needed is read all the same. Unlike Kafka, which drops the bits of the last byte that do not fit into 32
or 64, this module refuses them.
"""

from __future__ import annotations

from typing import Final

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError, VarintError

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
UINT32_MAX: Final = 2**32 - 1


def _encode(value: int) -> bytes:
    return _groups((value << 1) ^ (value >> 63))


def _groups(rest: int) -> bytes:
    groups = bytearray()
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    groups.append(rest)
    return bytes(groups)


_SMALL: Final = [_encode(value) for value in range(1024)]  # nearly every size and count there is


def encode_varint(value: int) -> bytes:
    """Return `value` in as few bytes as it needs. Raises ValueError if it does not fit into 32 bits."""
    if 0 <= value < 1024:
        return _SMALL[value]
    if not INT32_MIN <= value <= INT32_MAX:
        raise ValueError(f"a varint holds a signed 32-bit integer, got {value}")
    return _encode(value)


def decode_varint(data: bytes, position: int, what: str) -> tuple[int, int]:
    """Return the varint at `position`, and the position after it; `what` names it in errors. Raises FormatError."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        zigzag = byte & 0x7F
        for shift in (7, 14, 21, 28):
            position += 1
            byte = data[position]
            zigzag |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise VarintError(what)
    except IndexError:
        raise TruncatedError(what, wanted=1, got=0) from None
    if zigzag > 0xFFFFFFFF:
        raise FormatError(what, "varint needs more than 32 bits")
    return (zigzag >> 1) ^ -(zigzag & 1), position + 1


def encode_varlong(value: int) -> bytes:
    """Return `value` in as few bytes as it needs. Raises ValueError if it does not fit into 64 bits."""
    if 0 <= value < 1024:
        return _SMALL[value]
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"a varlong holds a signed 64-bit integer, got {value}")
    return _encode(value)


def decode_varlong(data: bytes, position: int, what: str) -> tuple[int, int]:
    """Return the varlong at `position`, and the position after it. Raises as `decode_varint`, beyond 64 bits."""
    zigzag, position = _read_groups(data, position, what, max_bytes=10)
    if zigzag >> 64:
        raise FormatError(what, "varlong needs more than 64 bits")
    return (zigzag >> 1) ^ -(zigzag & 1), position


def encode_uvarint(value: int) -> bytes:
    """Return `value` in as few bytes as it needs. Raises ValueError if it is negative or needs more than 32 bits."""
    if not 0 <= value <= UINT32_MAX:
        raise ValueError(f"a uvarint holds an unsigned 32-bit integer, got {value}")
    return _groups(value)


def decode_uvarint(data: bytes, position: int, what: str) -> tuple[int, int]:
    """Return the uvarint at `position`, and the position after it. Raises what `decode_varint` raises."""
    value, position = _read_groups(data, position, what, max_bytes=5)
    if value > UINT32_MAX:
        raise FormatError(what, "uvarint needs more than 32 bits")
    return value, position


def _read_groups(data: bytes, position: int, what: str, *, max_bytes: int) -> tuple[int, int]:
    value = 0
    for index in range(max_bytes):
        if position + index >= len(data):
            raise TruncatedError(what, wanted=1, got=0)
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise VarintError(what, max_bytes=max_bytes)


def take_bytes(data: bytes, start: int, size: int, what: str) -> tuple[bytes, int]:
    """Return `size` bytes from `start` on, and the position after them. Raises TruncatedError, naming `what`."""
    end = start + size
    if end > len(data):
        raise TruncatedError(what, wanted=size, got=len(data) - start)
    return data[start:end], end
