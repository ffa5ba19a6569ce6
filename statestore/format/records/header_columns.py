"""Header columns: the layout of `header_bytes` for whole Arrow columns.

    list<element: struct<key: string, value: binary>>  <->  binary

Byte for byte and value for value what the scalar codec does, errors included, but without a Python loop over rows.
Source: KIP-1271; the list type is that of the `headers` column of Spark's Kafka source and sink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import FormatError
from statestore.format.binary_columns import (
    Bytes,
    Flags,
    Integers,
    as_binary_array,
    as_one_array,
    binary_array,
    decode_row,
    interleave,
    is_valid,
    positions_and_bytes,
    positions_of,
    read_varints,
    refuse_row,
    row_sizes,
    varint_array,
)
from statestore.format.records.header_bytes import MIN_HEADER_SIZE, decode_key, parse_headers

HEADERS_TYPE: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""Spark's array<struct<key: string, value: binary>>, as it comes to Python and goes back."""

_MAX_TURNS: Final = 64
"""Rows with more headers are decoded one by one, lest a handful of long rows take a turn for each of their headers."""


def encode_header_column(headers: pa.ListArray | pa.ChunkedArray) -> pa.BinaryArray:
    """Return `header_bytes.encode_headers` of each row; a null row has no headers, so it gives b"" too.

    Raises TypeError if the column is not of HEADERS_TYPE, FormatError naming the row if a header or its key is null,
    and ValueError if the result would exceed 2^31 - 1 bytes.
    """
    require_headers(headers)
    headers = as_one_array(headers, "headers")
    counts = header_counts(headers)
    firsts = positions_of(counts)  # where the headers of each row begin among all headers
    entries = headers.flatten()
    keys, values = entries.field("key"), entries.field("value")
    _refuse_null(entries, firsts, "header")
    _refuse_null(keys, firsts, "header key")

    return encode_entries(counts, [varint_array(row_sizes(keys)), keys.cast(pa.binary())], values)


def encode_entries(counts: Integers, names: list[pa.BinaryArray], values: pa.BinaryArray) -> pa.BinaryArray:
    """Return rows of so many headers, with these parts before each value's size. Raises ValueError if too large."""
    firsts = positions_of(counts)
    sizes = varint_array(np.where(is_valid(values), row_sizes(values), -1))
    parts = [_counts_at_first_headers(counts, firsts), *names, sizes, values]
    positions, data = interleave(parts, "encoded headers")
    return binary_array(positions[firsts * len(parts)], data)


def require_headers(column: pa.ListArray | pa.ChunkedArray) -> None:
    """Raise TypeError if a column is not of HEADERS_TYPE but for what may be null."""
    if not holds_headers(column.type):
        raise TypeError(f"headers must be a column of type {HEADERS_TYPE}, got {column.type}")


def header_counts(lists: pa.ListArray) -> Integers:
    """Return how many headers each row has; 0 for a null."""
    counts: Integers = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def holds_headers(type_: pa.DataType) -> bool:
    """Return whether `type_` is HEADERS_TYPE but for what may be null."""
    if not pa.types.is_list(type_) or not pa.types.is_struct(type_.value_type):
        return False
    return [(field.name, field.type) for field in type_.value_type] == [("key", pa.string()), ("value", pa.binary())]


def _counts_at_first_headers(counts: Integers, firsts: Integers) -> pa.BinaryArray:
    """Return for each header the varint of its row's count if it is the row's first, else nothing."""
    filled = np.flatnonzero(counts)
    positions, data = positions_and_bytes(varint_array(counts[filled]))
    sizes = np.zeros(firsts[-1], np.int64)
    sizes[firsts[filled]] = np.diff(positions)
    return binary_array(positions_of(sizes), data)


def _refuse_null(entries: pa.Array, firsts: Integers, what: str) -> None:
    if entries.null_count:
        entry = int(np.argmin(is_valid(entries)))
        row = int(np.searchsorted(firsts, entry, side="right")) - 1
        raise FormatError(f"row {row}: {what}", "is null")


def decode_header_column(encoded: pa.BinaryArray | pa.ChunkedArray) -> pa.ListArray:
    """Return `header_bytes.decode_headers` of each row, as HEADERS_TYPE; a null row stays null. `parse_count` stays.

    Raises TypeError if the column is not binary, and what the scalar codec raises for the first row that it would
    refuse, naming the row.
    """
    encoded = as_binary_array(encoded, "encoded headers")
    positions, data = positions_and_bytes(encoded)
    valid = is_valid(encoded)
    rows = np.flatnonzero(valid & (np.diff(positions) > 0))
    ends = positions[rows + 1]
    counts, starts, sound = read_varints(data, positions[rows], ends)
    counts = np.maximum(counts, 0)
    sound &= counts * MIN_HEADER_SIZE <= ends - starts
    refused = _first_unsound(rows, sound, len(encoded))

    short = (rows < refused) & (counts > 0) & (counts <= _MAX_TURNS)
    spans, has_value, sound = find_entries(data, starts[short], ends[short], counts[short])
    refused = _first_unsound(rows[short], sound, refused)
    long_rows = rows[(rows < refused) & (counts > _MAX_TURNS)].tolist()
    long_pairs = [pair for row in long_rows for pair in decode_row(parse_headers, encoded, row)]
    if refused < len(encoded):
        refuse_row(parse_headers, encoded, refused)

    keys, values = _copy_headers(data, spans, has_value)
    row_counts = np.zeros(len(encoded), np.int64)
    row_counts[rows] = counts
    if long_pairs:
        keys = pa.concat_arrays([keys, pa.array([key for key, _ in long_pairs], pa.string())])
        values = pa.concat_arrays([values, pa.array([value for _, value in long_pairs], pa.binary())])
        in_long_row = np.repeat(row_counts > _MAX_TURNS, row_counts)
        order = np.empty(len(keys), np.int64)
        order[np.argsort(in_long_row, kind="stable")] = np.arange(len(keys))
        keys, values = keys.take(pa.array(order)), values.take(pa.array(order))
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    offsets = pa.array(positions_of(row_counts).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, entries, type=HEADERS_TYPE, mask=pa.array(~valid))


def _first_unsound(rows: Integers, sound: Flags, otherwise: int) -> int:
    """Return the first of `rows` (ascending) that is not sound, `otherwise` if all are."""
    return otherwise if sound.all() else int(rows[np.argmin(sound)])


def find_entries(
    data: Bytes,
    starts: Integers,
    ends: Integers,
    counts: Integers,
    *,
    sized_keys: bool = True,
    read: Callable[[Bytes, Integers, Integers], tuple[Integers, Integers, Flags]] = read_varints,
) -> tuple[npt.NDArray[np.int32], Flags, Flags]:
    """Walk through all rows together, one header of each at a turn; `starts` are those of the first headers.

    A key is a varint itself unless it is behind its size, as `sized_keys` says. `read` reads numbers.
    Return for each header where key and value start and end (start, end, start, end) and whether it has a value, and
    for each row whether it is sound. Rows behind an unsound one are given up: nothing will be made of the column.
    """
    firsts = positions_of(counts)
    spans = np.empty((firsts[-1], 4), np.int32)
    has_value = np.empty(firsts[-1], np.bool_)
    sound_rows = np.ones(len(counts), np.bool_)
    rows: Integers = np.arange(len(counts))
    position = starts
    for turn in range(counts.max(initial=0)):
        going_on = counts[rows] > turn
        if not going_on.all():
            rows, position, ends = rows[going_on], position[going_on], ends[going_on]
        key_size, key_start, sound = read(data, position, ends)
        if not sized_keys:
            key_size, key_start = key_start - position, position
        key_end = key_start + key_size
        value_size, value_start, value_sound = read(data, key_end, ends)  # unsound if the key reaches the end
        position = value_start + np.maximum(value_size, 0)
        sound &= (key_size >= 0) & value_sound & (value_size >= -1) & (position <= ends)
        header = firsts[rows] + turn
        spans[header, 0] = key_start
        spans[header, 1] = key_end
        spans[header, 2] = value_start
        spans[header, 3] = position
        has_value[header] = value_size >= 0
        if not sound.all():
            unsound = int(np.argmin(sound))
            sound_rows[rows[unsound]] = False
            rows, position, ends = rows[:unsound], position[:unsound], ends[:unsound]
    return spans, has_value, sound_rows


def copy_entries(data: Bytes, spans: npt.NDArray[np.int32], has_value: Flags) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return keys and values: `data` cut at each start and end, which ascend, and every other piece taken."""
    if not len(spans):
        return pa.array([], pa.binary()), pa.array([], pa.binary())
    pieces = binary_array(np.append(spans, spans[-1, 3]), data)
    key_pieces = np.arange(0, 4 * len(spans), 4)
    return pieces.take(pa.array(key_pieces)), pieces.take(pa.array(key_pieces + 2, mask=~has_value))


def _copy_headers(data: Bytes, spans: npt.NDArray[np.int32], has_value: Flags) -> tuple[pa.StringArray, pa.BinaryArray]:
    keys, values = copy_entries(data, spans, has_value)
    try:
        return keys.cast(pa.string()), values
    except pa.ArrowInvalid:  # some key is not UTF-8; keys are few, and each is looked at once
        distinct = keys.dictionary_encode()
        texts = [decode_key(key) for key in distinct.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(distinct.indices), values
