"""Headers found, added and removed in a column, of lists as Spark has them or of header bytes, without an object a row.

A null row counts as one without headers, and stays null where nothing is added to lists. All raise TypeError for a
column of another type, and those of header bytes FormatError naming the row whose bytes are not headers. They do to
every row what Headers does to one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import Flags, Integers, as_binary_array, is_valid, positions_of
from statestore.format.records.header_columns import (
    HEADERS_TYPE,
    decode_header_column,
    encode_header_column,
    header_counts,
    require_headers,
)

_ENTRY_TYPE = HEADERS_TYPE.value_type


def rows_of_headers(lists: pa.ListArray) -> Integers:
    """Return the row that each header stands in, in the order of `lists.flatten()`."""
    counts = header_counts(lists)
    rows: Integers = np.repeat(np.arange(len(counts)), counts)
    return rows


def headers_with_key(lists: pa.ListArray, *keys: str) -> Flags:
    """Return for each header, in the order of `lists.flatten()`, whether it has one of these keys."""
    require_headers(lists)
    found: Flags = np.asarray(pc.is_in(lists.flatten().field("key"), pa.array(keys, pa.string())))
    return found


def rows_with_key(lists: pa.ListArray, key: str) -> Flags:
    """Return for each row whether it has a header of this key."""
    return _rows_with(lists, headers_with_key(lists, key))


def rows_with_header(lists: pa.ListArray, key: str, value: bytes) -> Flags:
    """Return for each row whether it has a header of this key with this value."""
    is_value = pc.fill_null(pc.equal(lists.flatten().field("value"), pa.scalar(value, pa.binary())), False)
    return _rows_with(lists, headers_with_key(lists, key) & np.asarray(is_value))


def _rows_with(lists: pa.ListArray, wanted: Flags) -> Flags:
    found = np.zeros(len(lists), np.bool_)
    found[rows_of_headers(lists)[wanted]] = True
    return found


def add_to_lists(
    lists: pa.ListArray, key: str, values: pa.BinaryArray | bytes | None, rows: Flags | None = None
) -> pa.ListArray:
    """Return the lists with one more header each, behind the others, or with one in some of the rows only.

    `values` has one for each row, or is one for all. Raises ValueError if there are not as many values as rows.
    """
    require_headers(lists)
    size = len(lists)
    column = pa.repeat(pa.scalar(values, pa.binary()), size) if isinstance(values, bytes | None) else values
    column = as_binary_array(column, f"values of header {key!r}")
    if len(column) != size:
        raise ValueError(f"header {key!r}: {len(column)} values for {size} records")
    chosen = np.ones(size, np.bool_) if rows is None else rows
    column = column if rows is None else column.filter(pa.array(chosen))
    added = pa.StructArray.from_arrays([pa.repeat(pa.scalar(key), len(column)), column], fields=list(_ENTRY_TYPE))
    entries = lists.flatten()
    positions = positions_of(header_counts(lists) + chosen)
    order = np.empty(len(entries) + len(added), np.int64)
    is_added = np.zeros(len(order), np.bool_)
    is_added[positions[1:][chosen] - 1] = True
    order[is_added] = len(entries) + np.arange(len(added))
    order[~is_added] = np.arange(len(entries))
    everything = pa.concat_arrays([_entries(entries), added]).take(pa.array(order))
    return _lists(positions, everything, is_valid(lists) | chosen)


def remove_from_lists(lists: pa.ListArray, keys: Sequence[str], rows: Flags | None = None) -> pa.ListArray:
    """Return the lists without headers of these keys, or some of the rows; unchanged where nobody has one."""
    kept = ~headers_with_key(lists, *keys)
    places = rows_of_headers(lists)
    if rows is not None:
        kept |= ~rows[places]
    if kept.all():
        return lists
    counts = np.bincount(places[kept], minlength=len(lists))
    return _lists(positions_of(counts), lists.flatten().filter(pa.array(kept)), is_valid(lists))


def _lists(positions: Integers, entries: pa.StructArray, valid: Flags) -> pa.ListArray:
    mask = None if valid.all() else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(positions, pa.int32()), _entries(entries), type=HEADERS_TYPE, mask=mask)


def _entries(entries: pa.StructArray) -> pa.StructArray:
    """Return headers with all of them and their keys nullable, as the type has them."""
    return entries if entries.type == _ENTRY_TYPE else entries.cast(_ENTRY_TYPE)


def last_header_column(headers: pa.BinaryArray, key: str) -> pa.BinaryArray:
    """Return the value of each row's last header `key`; null where there is none, or its value is null."""
    decoded = decode_header_column(headers)
    found = np.flatnonzero(headers_with_key(decoded, key))
    places = np.full(len(headers), -1, np.int64)
    places[rows_of_headers(decoded)[found]] = found  # of several for one row, the last one stays
    return decoded.flatten().field("value").take(pa.array(places, mask=places < 0))


def add_header_column(headers: pa.BinaryArray, key: str, values: pa.BinaryArray | bytes | None) -> pa.BinaryArray:
    """Return the rows with one more header, of a value for each row or one for all. Raises as `add_to_lists`."""
    return encode_header_column(add_to_lists(decode_header_column(headers), key, values))


def remove_header_column(headers: pa.BinaryArray, key: str) -> pa.BinaryArray:
    """Return the rows without any header `key`; a column where nobody has one is returned as it is."""
    headers = as_binary_array(headers, "headers")
    decoded = decode_header_column(headers)
    kept = remove_from_lists(decoded, [key])
    return headers if kept is decoded else encode_header_column(kept)
