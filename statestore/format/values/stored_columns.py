"""The layouts of a store's values side by side, for whole Arrow columns: `stored_value` without an object a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.errors import FormatError
from statestore.format.binary_columns import (
    Bytes,
    Flags,
    Integers,
    as_binary_array,
    as_one_array,
    binary_array,
    cut_rows,
    interleave,
    is_valid,
    numbers_at_each_byte,
    positions_and_bytes,
    positions_of,
    read_varints,
    refuse_unsound,
    row_sizes,
    rows_of_numbers,
    varint_array,
)
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import (
    TIMESTAMP_SIZE,
    split_value_headers,
    split_value_timestamp,
    split_value_timestamp_headers,
)


class StoredColumns(NamedTuple):
    """Stored values taken apart; a null row is null in all columns. None is what their layout has no room for."""

    value: pa.BinaryArray
    timestamp_ms: pa.Int64Array | None
    header_bytes: pa.BinaryArray | None


def split_stored_columns(store_format: StoreFormat, stored: pa.BinaryArray) -> StoredColumns:
    """Return what `stored_value.split_stored` does of each row. Raises FormatError naming the row."""
    return _SPLIT[store_format](as_binary_array(stored, "stored values"))


def join_stored_columns(
    store_format: StoreFormat, values: pa.BinaryArray, timestamps_ms: pa.Int64Array, header_bytes: pa.BinaryArray
) -> pa.BinaryArray:
    """Return what `join_stored` does of each row; null for null. Raises ValueError beyond 2^31 - 1 bytes."""
    return _JOIN[store_format](values, timestamps_ms, header_bytes)


def join_columns(
    values: pa.BinaryArray | pa.ChunkedArray,
    timestamps_ms: pa.Int64Array | pa.ChunkedArray,
    header_bytes: pa.BinaryArray | pa.ChunkedArray,
) -> pa.BinaryArray:
    """Return `encode_value_timestamp_headers` of each row; a null value gives null, whatever stands beside it.

    Raises TypeError if a column is of another type, ValueError if their lengths differ or the result would exceed
    2^31 - 1 bytes, and FormatError naming the row if a value has no timestamp or no header bytes.
    """
    values = as_binary_array(values, "values")
    header_bytes = as_binary_array(header_bytes, "header bytes")
    if not pa.types.is_int64(timestamps_ms.type):
        raise TypeError(f"timestamps must be an int64 column, got {timestamps_ms.type}")
    timestamps_ms = as_one_array(timestamps_ms, "timestamps")
    lengths = len(values), len(timestamps_ms), len(header_bytes)
    if len(set(lengths)) > 1:
        raise ValueError("columns differ in length: {} values, {} timestamps, {} header bytes".format(*lengths))
    valid = is_valid(values)
    _refuse_null(timestamps_ms, valid, "timestamp")
    _refuse_null(header_bytes, valid, "header bytes")
    times = _timestamp_array(timestamps_ms)
    return _joined([varint_array(row_sizes(header_bytes)), header_bytes, times, values], values)


def _refuse_null(column: pa.Array, needed: Flags, what: str) -> None:
    missing = needed & ~is_valid(column)
    if missing.any():
        raise FormatError(f"row {int(np.argmax(missing))}: {what}", "is null, but the value is not")


def split_columns(stored: pa.BinaryArray | pa.ChunkedArray) -> tuple[pa.BinaryArray, pa.Int64Array, pa.BinaryArray]:
    """Return values, timestamps in ms and header bytes; a null row is null in all three. Headers are not parsed.

    Raises TypeError if the column is not binary, and what `split_value_timestamp_headers` raises for the first row that
    it would refuse, naming the row.
    """
    stored = as_binary_array(stored, "stored values")
    positions, data = positions_and_bytes(stored)
    valid = is_valid(stored)
    starts, ends = positions[:-1], positions[1:]
    sizes, header_starts, sound = read_varints(data, starts, ends)
    timestamp_starts = header_starts + sizes
    value_starts = timestamp_starts + TIMESTAMP_SIZE
    is_sound = sound & (sizes >= 0) & (value_starts <= ends)
    refuse_unsound(valid & ~is_sound, split_value_timestamp_headers, stored)

    cuts = np.empty((len(stored), 4), np.int32)
    for column, cut in enumerate((starts, header_starts, timestamp_starts, value_starts)):
        cuts[:, column] = cut if valid.all() else np.where(valid, cut, starts)
    pieces = binary_array(np.append(cuts, positions[-1]), data)
    header_pieces = np.arange(1, 4 * len(stored), 4)
    values = pieces.take(pa.array(header_pieces + 2, mask=~valid))
    header_bytes = pieces.take(pa.array(header_pieces, mask=~valid))
    return values, _timestamps_at(data, timestamp_starts, valid), header_bytes


def _split_timestamped(stored: pa.BinaryArray) -> StoredColumns:
    positions, data = positions_and_bytes(stored)
    valid = is_valid(stored)
    value_starts = positions[:-1] + TIMESTAMP_SIZE
    refuse_unsound((value_starts > positions[1:]) & valid, split_value_timestamp, stored)
    values = cut_rows(data, value_starts, positions[1:], valid)
    return StoredColumns(values, _timestamps_at(data, positions[:-1], valid), None)


def _split_with_headers(stored: pa.BinaryArray) -> StoredColumns:
    positions, data = positions_and_bytes(stored)
    valid = is_valid(stored)
    sizes, header_starts, sound = read_varints(data, positions[:-1], positions[1:])
    value_starts = header_starts + sizes
    is_sound = sound & (sizes >= 0) & (value_starts <= positions[1:])
    refuse_unsound(valid & ~is_sound, split_value_headers, stored)
    values = cut_rows(data, value_starts, positions[1:], valid)
    header_ends = np.where(valid, value_starts, positions[:-1])
    return StoredColumns(values, None, cut_rows(data, header_starts, header_ends, valid))


def _timestamps_at(data: Bytes, starts: Integers, valid: Flags) -> pa.Int64Array:
    timestamps = np.zeros(len(valid), np.int64)
    timestamps[valid] = numbers_at_each_byte(data, ">i8")[starts[valid]]
    return pa.array(timestamps, mask=~valid)


def _timestamp_array(timestamps_ms: pa.Int64Array) -> pa.BinaryArray:
    """Return timestamps in ms as they are stored; any bytes for a null."""
    return rows_of_numbers(timestamps_ms.fill_null(0).to_numpy().astype(">i8"))


def _joined(parts: list[pa.BinaryArray], values: pa.BinaryArray) -> pa.BinaryArray:
    valid = is_valid(values)
    if not valid.all():
        parts = [part.filter(pa.array(valid)) for part in parts]
    positions, data = interleave(parts, "stored values")
    sizes = np.zeros(len(valid), np.int64)
    sizes[valid] = np.diff(positions[:: len(parts)])
    return binary_array(positions_of(sizes), data, valid)


_SPLIT: Final[dict[StoreFormat, Callable[[pa.BinaryArray], StoredColumns]]] = {
    StoreFormat.PLAIN: lambda stored: StoredColumns(stored, None, None),
    StoreFormat.TIMESTAMPED: _split_timestamped,
    StoreFormat.TIMESTAMPED_WITH_HEADERS: lambda stored: StoredColumns(*split_columns(stored)),
    StoreFormat.WITH_HEADERS: _split_with_headers,
}
_JOIN: Final[dict[StoreFormat, Callable[[pa.BinaryArray, pa.Int64Array, pa.BinaryArray], pa.BinaryArray]]] = {
    StoreFormat.PLAIN: lambda values, timestamps_ms, header_bytes: values,
    StoreFormat.TIMESTAMPED: lambda values, timestamps_ms, _: _joined(
        [_timestamp_array(timestamps_ms), values], values
    ),
    StoreFormat.TIMESTAMPED_WITH_HEADERS: join_columns,
    StoreFormat.WITH_HEADERS: lambda values, _, header_bytes: _joined(
        [varint_array(row_sizes(header_bytes)), header_bytes, values], values
    ),
}
