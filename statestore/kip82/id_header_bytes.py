"""Id header bytes: headers with numbers for keys.

    headers := (nothing, if there are none) | count:varint header[count]
    header  := id value_size:varint value:u8[value_size]
    id      := i32_be | varint, the same for all

A value size of -1 is a null value. Ids may repeat, and their order is kept. Which form the ids have does not stand in
the bytes: both sides know. Source: KIP-82, the rejected `Map<Int, byte[]>`, "only 4 bytes".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import Enum
from typing import Final

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.varint import decode_varint, encode_varint

_ID: Final = struct.Struct(">i")
_NULL_SIZE: Final = encode_varint(-1)


class IdForm(Enum):
    """How an id stands in the bytes. Each holds a signed 32-bit integer."""

    FIXED = "fixed"
    """Four bytes."""
    VARINT = "varint"
    """One byte from -64 to 63, up to five beyond."""


_MIN_HEADER_SIZE: Final = {IdForm.FIXED: _ID.size + 1, IdForm.VARINT: 2}


def encode_id_headers(pairs: Iterable[tuple[int, bytes | None]], form: IdForm) -> bytes:
    """Return the headers of these ids and values, in their order; b"" if there are none.

    Raises ValueError if an id does not fit into 32 bits.
    """
    parts = [b""]
    count = 0
    for header_id, value in pairs:
        parts.append(_encode_id(header_id, form))
        parts += (_NULL_SIZE,) if value is None else (encode_varint(len(value)), value)
        count += 1
    if count:
        parts[0] = encode_varint(count)
    return b"".join(parts)


def _encode_id(header_id: int, form: IdForm) -> bytes:
    if form is IdForm.VARINT:
        return encode_varint(header_id)
    try:
        return _ID.pack(header_id)
    except struct.error as cause:
        raise ValueError(f"a header id is a signed 32-bit integer, got {header_id}") from cause


def decode_id_headers(data: bytes, form: IdForm) -> list[tuple[int, bytes | None]]:
    """Return the headers in `data`, in order; a null value is None.

    Raises TruncatedError, NegativeLengthError, VarintError or FormatError where `data` does not follow the layout.
    """
    if not data:
        return []
    count, position = decode_varint(data, 0, "id header count")
    if count < 0:
        raise NegativeLengthError("id headers", length=count)
    needed = count * _MIN_HEADER_SIZE[form]
    if needed > len(data) - position:
        raise TruncatedError("id headers", wanted=needed, got=len(data) - position)
    pairs: list[tuple[int, bytes | None]] = []
    for _ in range(count):
        header_id, position = _decode_id(data, position, form)
        size, position = decode_varint(data, position, "id header value size")
        if size < -1:
            raise NegativeLengthError("id header value", length=size)
        if size == -1:
            pairs.append((header_id, None))
            continue
        end = position + size
        if end > len(data):
            raise TruncatedError("id header value", wanted=size, got=len(data) - position)
        pairs.append((header_id, data[position:end]))
        position = end
    if position != len(data):
        raise FormatError("id headers", f"have {len(data) - position} bytes behind the last one")
    return pairs


def _decode_id(data: bytes, position: int, form: IdForm) -> tuple[int, int]:
    if form is IdForm.VARINT:
        return decode_varint(data, position, "header id")
    if position + _ID.size > len(data):
        raise TruncatedError("header id", wanted=_ID.size, got=len(data) - position)
    (header_id,) = _ID.unpack_from(data, position)
    return int(header_id), position + _ID.size
