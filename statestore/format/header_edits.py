"""Headers looked up, added and removed in a whole column of header bytes, without a Python object a row.

Each does to every row what Headers does to one, and writes what Headers writes, in the layout of `header_bytes`. A null
row counts as one without headers. All raise TypeError for a column that is not binary, and FormatError naming the row
whose bytes are no headers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import Flags, Integers, as_binary_array, positions_of
from statestore.format.header_columns import HEADERS_TYPE, decode_header_column, encode_header_column

_ENTRY_TYPE = HEADERS_TYPE.value_type


def last_header_column(headers: pa.BinaryArray, key: str) -> pa.BinaryArray:
    """Return the value of each row's last header `key`; null where there is none, or its value is null."""
    decoded = decode_header_column(headers)
    found = np.flatnonzero(_has_key(decoded, key))
    places = np.full(len(headers), -1, np.int64)
    places[_rows(decoded)[found]] = found  # of several for one row, the last one stays
    return decoded.flatten().field("value").take(pa.array(places, mask=places < 0))


def add_header_column(headers: pa.BinaryArray, key: str, values: pa.BinaryArray | bytes | None) -> pa.BinaryArray:
    """Return the rows with one more header each, behind the others; `values` has one for each row, or is one for all.

    Raises ValueError if there are not as many values as rows.
    """
    rows = len(headers)
    column = pa.repeat(pa.scalar(values, pa.binary()), rows) if isinstance(values, bytes | None) else values
    column = as_binary_array(column, f"values of header {key!r}")
    if len(column) != rows:
        raise ValueError(f"header {key!r}: {len(column)} values for {rows} records")
    decoded = decode_header_column(headers)
    added = pa.StructArray.from_arrays([pa.repeat(pa.scalar(key), rows), column], fields=list(_ENTRY_TYPE))
    entries = decoded.flatten()
    positions = positions_of(np.bincount(_rows(decoded), minlength=rows) + 1)
    order = np.empty(len(entries) + rows, np.int64)
    is_added = np.zeros(len(order), np.bool_)
    is_added[positions[1:] - 1] = True
    order[is_added] = len(entries) + np.arange(rows)
    order[~is_added] = np.arange(len(entries))
    return _encode(positions, pa.concat_arrays([entries, added]).take(pa.array(order)))


def remove_header_column(headers: pa.BinaryArray, key: str) -> pa.BinaryArray:
    """Return the rows without any header `key`; a column where nobody has one is returned as it is."""
    headers = as_binary_array(headers, "headers")
    decoded = decode_header_column(headers)
    kept = ~_has_key(decoded, key)
    if kept.all():
        return headers
    counts = np.bincount(_rows(decoded)[kept], minlength=len(headers))
    return _encode(positions_of(counts), decoded.flatten().filter(pa.array(kept)))


def _has_key(decoded: pa.ListArray, key: str) -> Flags:
    found: Flags = pc.equal(decoded.flatten().field("key"), key).to_numpy(zero_copy_only=False)
    return found


def _rows(decoded: pa.ListArray) -> Integers:
    """Return the row that each header stands in."""
    rows: Integers = pc.list_parent_indices(decoded).to_numpy()
    return rows


def _encode(positions: Integers, entries: pa.StructArray) -> pa.BinaryArray:
    return encode_header_column(pa.ListArray.from_arrays(pa.array(positions, pa.int32()), entries).cast(HEADERS_TYPE))
