"""Id header bytes for whole Arrow columns: `id_header_bytes` with ids of varints, without a Python object a row.

    list<element: struct<key: string, value: binary>>  <->  binary

What is malformed is not told here: the caller asks the scalar codec, row by row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import binary_array, positions_and_bytes, positions_of, read_varints
from statestore.format.records.header_columns import HEADERS_TYPE, encode_entries, find_entries
from statestore.format.varint import decode_varint, encode_varint

_MAX_TURNS = 64
"""With more headers in a row, the scalar codec is faster."""


def encode_id_header_column(headers: pa.ListArray, id_of: Callable[[str], int]) -> pa.BinaryArray:
    """Return `encode_id_headers` of each row of HEADERS_TYPE, none of them null. `id_of` is asked once for each key."""
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False).astype(np.int64)
    entries = headers.flatten()
    keys = entries.field("key").dictionary_encode()
    ids = pa.array([encode_varint(id_of(key)) for key in keys.dictionary.to_pylist()], pa.binary())
    return encode_entries(counts, [ids.take(keys.indices)], entries.field("value"))


def decode_id_header_column(encoded: pa.BinaryArray, key_of: Callable[[int], str]) -> pa.ListArray | None:
    """Return the headers of each row, none of them null, as HEADERS_TYPE; None if the scalar codec is to be asked.

    `key_of` is asked once for each id.
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
