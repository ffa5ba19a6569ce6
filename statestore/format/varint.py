"""Varint: a signed 32-bit integer in one to five bytes.

    varint := the zigzag code of value:i32 in groups of 7 bits, lowest first; a high bit says that a group follows

Zigzag keeps small numbers of either sign short: 0 -> 00, -1 -> 01, 1 -> 02, 63 -> 7e, 64 -> 8001.
Source: Kafka's ByteUtils.writeVarint and readVarint. As in Kafka, a longer encoding than needed is read all the same.
Unlike Kafka, which drops the bits of a fifth byte that do not fit into 32, this module refuses them.
"""

from __future__ import annotations

from typing import Final

from statestore.errors import FormatError, TruncatedError, VarintError

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1


def _encode(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 31)
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
    """Return the value of the varint at `position` (0 or more) and the position after it.

    `what` names the field in errors. Raises TruncatedError if `data` ends first, VarintError if a fifth byte asks for
    a sixth, and FormatError if the value needs more than 32 bits.
    """
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
