"""Id header bytes: headers with numbers for keys, one by one and, with ids of varints, in Arrow columns.

    headers := (nothing, if there are none) | count:varint header[count]
    header  := id value_size:varint value:u8[value_size]
    id      := i32_be | varint, the same for all

A value size of -1 is a null value. Ids may repeat, and their order is kept. The bytes do not say which form the ids
have: both sides know. Source: KIP-82, the rejected `Map<Int, byte[]>`, "only 4 bytes".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.binary_columns import binary_array, positions_and_bytes, positions_of, read_varints
from statestore.format.records.header_columns import HEADERS_TYPE, encode_entries, find_entries, header_counts
from statestore.format.varint import decode_varint, encode_varint, take_bytes

_ID: Final = struct.Struct(">i")
_NULL_SIZE: Final = encode_varint(-1)
_MAX_TURNS: Final = 64
"""With more headers in a row, the scalar codec is faster."""


class IdForm(Enum):
    """How a signed 32-bit integer is written as an id."""

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
        value, position = take_bytes(data, position, size, "id header value")
        pairs.append((header_id, value))
    if position != len(data):
        raise FormatError("id headers", f"have {len(data) - position} bytes behind the last one")
    return pairs


def _decode_id(data: bytes, position: int, form: IdForm) -> tuple[int, int]:
    if form is IdForm.VARINT:
        return decode_varint(data, position, "header id")
    encoded, position = take_bytes(data, position, _ID.size, "header id")
    return int(_ID.unpack(encoded)[0]), position


def encode_id_header_column(headers: pa.ListArray, id_of: Callable[[str], int]) -> pa.BinaryArray:
    """Return `encode_id_headers` of each row of HEADERS_TYPE, none of them null. `id_of` is asked once for each key."""
    counts = header_counts(headers)
    entries = headers.flatten()
    keys = entries.field("key").dictionary_encode()
    ids = pa.array([encode_varint(id_of(key)) for key in keys.dictionary.to_pylist()], pa.binary())
    return encode_entries(counts, [ids.take(keys.indices)], entries.field("value"))


def decode_id_header_column(encoded: pa.BinaryArray, key_of: Callable[[int], str]) -> pa.ListArray | None:
    """Return the headers of each row, none of them null, as HEADERS_TYPE. `key_of` is asked once for each id.

    Returns None for malformed bytes and very long rows: use the scalar codec then, row by row.
    """
    positions, data = positions_and_bytes(encoded)
    rows = np.flatnonzero(np.diff(positions) > 0)
    ends = positions[rows + 1]
    counts, starts, sound = read_varints(data, positions[rows], ends)
    if not sound.all() or counts.min(initial=1) < 1 or counts.max(initial=0) > _MAX_TURNS:
        return None
    spans, has_value, sound = find_entries(data, starts, ends, counts, sized_keys=False)
    firsts = positions_of(counts)
    if not sound.all() or (spans[firsts[1:] - 1, 3] != ends).any():
        return None
    row_counts = np.zeros(len(encoded), np.int64)
    row_counts[rows] = counts
    if not len(spans):
        return pa.array([[]] * len(encoded), HEADERS_TYPE)
    pieces = binary_array(np.append(spans, spans[-1, 3]), data)
    places = np.arange(0, 4 * len(spans), 4)
    ids = pieces.take(pa.array(places)).dictionary_encode()
    numbers = [decode_varint(each, 0, "header id")[0] for each in ids.dictionary.to_pylist()]
    keys = pa.array([key_of(number) for number in numbers], pa.string())
    columns = [keys.take(ids.indices), pieces.take(pa.array(places + 2, mask=~has_value))]
    entries = pa.StructArray.from_arrays(columns, fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(positions_of(row_counts), pa.int32()), entries, type=HEADERS_TYPE)
